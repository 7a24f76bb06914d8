(() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { r, g, b, a };
  };

  const over = (top, ground) => ({
    r: top.r * top.a + ground.r * (1 - top.a),
    g: top.g * top.a + ground.g * (1 - top.a),
    b: top.b * top.a + ground.b * (1 - top.a),
    a: 1,
  });

  const groundOf = (node) => {
    if (node === null) {
      return { r: 255, g: 255, b: 255, a: 1 };
    }
    const own = parse(getComputedStyle(node).backgroundColor);
    return own.a === 1 ? own : over(own, groundOf(node.parentElement));
  };

  const channel = (value) => {
    const part = value / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  };

  const luminance = ({ r, g, b }) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);

  const contrast = (first, second) => {
    const [low, high] = [luminance(first), luminance(second)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };

  const all = (selector) => [...document.querySelectorAll(selector)];
  const isSeen = (node) => node.checkVisibility({ visibilityProperty: true });

  const textOf = (node) =>
    node.value ||
    [...node.childNodes]
      .filter((child) => child.nodeType === Node.TEXT_NODE)
      .map((child) => child.data.trim())
      .join("");

  const askedOf = ({ fontSize, fontWeight }) => {
    const size = parseFloat(fontSize);
    return size >= 24 || (size >= 18.66 && Number(fontWeight) >= 700) ? 3 : 4.5;
  };

  const opacityOf = (node) =>
    node === null ? 1 : Number(getComputedStyle(node).opacity) * opacityOf(node.parentElement);

  const textContrast = (node) => {
    const style = getComputedStyle(node);
    const ground = groundOf(node);
    const color = parse(style.color);
    const drawn = over({ ...color, a: color.a * opacityOf(node) }, ground);
    const found = contrast(drawn, ground);
    return { text: textOf(node).slice(0, 40), contrast: found, asked: askedOf(style) };
  };

  const edgeContrast = (node) => {
    const ground = groundOf(node.parentElement);
    const edge = over(parse(getComputedStyle(node).borderTopColor), ground);
    return { name: node.name || node.id, contrast: contrast(edge, ground) };
  };

  const ownText = (node) =>
    [...node.childNodes].find((child) => child.nodeType === Node.TEXT_NODE)?.data ?? "";

  const isMoving = ({ animationName, transitionDuration }) =>
    animationName !== "none" || transitionDuration.split(", ").some((one) => one !== "0s");

  const isRing = (style) =>
    (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2) ||
    style.boxShadow.includes(" 0px 0px 0px 1px");

  window.measures = {
    texts: () =>
      all("body *")
        .filter((node) => isSeen(node) && textOf(node))
        .map(textContrast),

    edges: () =>
      all(".field input, .field select, .field textarea, #search, .composer")
        .filter(isSeen)
        .map(edgeContrast),

    cutOff: () => {
      const width = document.documentElement.clientWidth;
      return all("html, body *")
        .filter((node) => !node.closest(".unseen, .skip, svg"))
        .map((node) => [node, node.getBoundingClientRect()])
        .filter(([, box]) => box.width > 0 && (box.left < -0.5 || box.right > width + 0.5))
        .map(([node, box]) => `${node.tagName} ${node.className} ${box.left} ${box.right}`);
    },

    smallTargets: () =>
      all("button, summary, input, textarea")
        .filter(isSeen)
        .map((node) => [node, node.getBoundingClientRect()])
        .filter(([, box]) => Math.min(box.width, box.height) < 24)
        .map(([node, box]) => `${node.id || node.name || textOf(node)} ${box.width} ${box.height}`),

    focus: () => {
      const node = document.activeElement;
      const rings = [node, node.closest("form")].filter(Boolean).map((one) => getComputedStyle(one));
      const text = ownText(node.labels?.[0] ?? node).trim();
      return { name: node.ariaLabel || text, isMarked: rings.some(isRing) };
    },

    moving: () =>
      ["", "::before", "::after"].flatMap((part) =>
        all("*")
          .filter((node) => isMoving(getComputedStyle(node, part)))
          .map((node) => `${node.tagName} ${node.className}${part}`),
      ),

    conversation: () => {
      const [seen, foot] = [".scroll", ".foot"].map((one) => document.querySelector(one));
      return foot.getBoundingClientRect().top - seen.getBoundingClientRect().top;
    },

    leftOf: (selector, sought) => {
      const texts = document.createTreeWalker(
        document.querySelector(selector),
        NodeFilter.SHOW_TEXT,
        ({ data }) => (data.includes(sought) ? NodeFilter.FILTER_ACCEPT : NodeFilter.FILTER_SKIP),
      );
      const text = texts.nextNode();
      const range = document.createRange();
      range.setStart(text, text.data.indexOf(sought));
      range.setEnd(text, range.startOffset + sought.length);
      return range.getBoundingClientRect().left;
    },
  };
})();

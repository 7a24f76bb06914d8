import { escaped } from "./elements.js";

const LONGEST = 2000;
const LARGEST_EM = 10;
const LARGEST_PT = 100;
const MOST_EXPANSIONS = 200;
const INLINE = [
  /^\$\$([^]{1,2000}?)\$\$/,
  /^\$(?![\s$])((?:\\.|[^\\$\n])+?)(?<!\s)\$(?![\d$])/,
  /^\\\(([^]{1,2000}?)\\\)/,
  /^\\\[([^]{1,2000}?)\\\]/,
];
const BLOCK = /^ {0,3}(?:\$\$([^]{1,4000}?)\$\$|\\\[([^]{1,4000}?)\\\])[ \t]*(?:\n|$)/;
const UNCLOSED = /^ {0,3}(?:\$\$(?:(?!\$\$)[^]){0,4000}|\\\[(?:(?!\\\])[^]){0,4000})$/;
const BLOCK_START = /^ {0,3}(?:\$\$|\\\[)/m;
const INLINE_START = /(?<![\w$\\])\$|\\[([]/;
const SANITISED = {
  IN_PLACE: true,
  USE_PROFILES: { mathMl: true },
  ADD_TAGS: ["span"],
  ADD_ATTR: ["class", "style"],
  FORBID_ATTR: ["id", "href", "name"],
};

let load = null;

const found = (pattern, text) => {
  const index = text.search(pattern);
  return index < 0 ? undefined : index;
};

const element = (tag, kind, { raw, source }) =>
  `<${tag} class="${kind}" data-source="${escaped(source)}">${escaped(raw.trim())}</${tag}>`;

function blockFormula(text, isOpen) {
  const match = BLOCK.exec(text) ?? (isOpen ? UNCLOSED.exec(text) : null);
  return match === null ? undefined : { raw: match[0], source: match[1] ?? match[2] ?? "" };
}

function inlineFormula(text) {
  const match = INLINE.map((pattern) => pattern.exec(text)).find((one) => one !== null);
  return match === undefined ? undefined : { raw: match[0], source: match[1] };
}

const isDisplayed = (raw) => raw.startsWith("$$") || raw.startsWith("\\[");

export const formulaSyntax = (isOpen) => [
  {
    name: "blockFormula",
    level: "block",
    start: (text) => found(BLOCK_START, text),
    tokenizer(text) {
      const token = blockFormula(text, isOpen());
      return token && { type: "blockFormula", ...token };
    },
    renderer: (token) => element("p", "formula displayed", token),
  },
  {
    name: "formula",
    level: "inline",
    start: (text) => found(INLINE_START, text),
    tokenizer(text) {
      const token = inlineFormula(text);
      return token && { type: "formula", ...token };
    },
    renderer: (token) =>
      element("span", isDisplayed(token.raw) ? "formula displayed" : "formula", token),
  },
];

export function loadFormulas() {
  load ??= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    const script = document.createElement("script");
    script.addEventListener("load", resolve);
    script.addEventListener("error", reject);
    style.rel = "stylesheet";
    style.href = new URL("./vendor/Temml-Local.css", import.meta.url);
    script.src = new URL("./vendor/temml.min.js", import.meta.url);
    document.head.prepend(style);
    document.head.append(script);
  });
  return load;
}

export const canDrawFormulas = () => globalThis.temml !== undefined;

function drawn(source, displayMode) {
  const node = document.createElement("span");
  globalThis.temml.render(source, node, {
    displayMode,
    throwOnError: true,
    maxSize: [LARGEST_EM, LARGEST_PT],
    maxExpand: MOST_EXPANSIONS,
  });
  return globalThis.DOMPurify.sanitize(node, SANITISED);
}

export function drawFormula(node) {
  const { source } = node.dataset;
  if (source === "" || source.length > LONGEST) {
    return;
  }
  try {
    node.replaceChildren(...drawn(source, node.classList.contains("displayed")).childNodes);
  } catch {
    node.classList.add("unreadable");
  }
}

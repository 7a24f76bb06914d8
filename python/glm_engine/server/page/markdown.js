import { escaped, make } from "./elements.js";
import { canDrawFormulas, drawFormula, formulaSyntax, loadFormulas } from "./formulas.js";
import { Lexer, Marked } from "./vendor/marked.esm.js";
import "./vendor/purify.min.js";

const LONGEST = 20_000;
const LONGEST_INLINE = 6_000;
const LONGEST_OF_TYPE = { code: 64_000, paragraph: LONGEST_INLINE };
const LONGEST_COLOURED = 25_000;
const LONG_CELL = 24;
const DEEPEST = 40;
const PIECES = /[^]{1,4000}(?:\n|$)|[^]{1,4000}/g;
const LINKED = /^(?:https?:\/\/|mailto:)/i;
const TOO_DEEP = new RegExp(`^(?:[ \\t]*(?:>|(?:[-*+]|\\d{1,9}[.)])(?=[ \\t]))){${DEEPEST}}`, "m");
const PLAIN_ATTRIBUTES = [
  ...["align", "aria-label", "checked", "class", "data-source", "disabled", "rel", "role"],
  ...["start", "tabindex", "target", "type"],
];
const SANITISED = {
  RETURN_DOM_FRAGMENT: true,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  ALLOWED_URI_REGEXP: LINKED,
  ALLOWED_TAGS: [
    ...["#text", "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6"],
    ...["hr", "input", "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th"],
    ...["thead", "tr", "ul"],
  ],
  ALLOWED_ATTR: [...PLAIN_ATTRIBUTES, "href"],
  ADD_URI_SAFE_ATTR: PLAIN_ATTRIBUTES,
};

let highlighter = null;
let highlighterLoad = null;
let isOpen = false;

function loadHighlighter() {
  highlighterLoad ??= import("./vendor/highlight.min.js").then((module) => {
    highlighter = module.default;
  });
  return highlighterLoad;
}

function coloured(text, language) {
  if (text.length > LONGEST_COLOURED || !highlighter?.getLanguage(language)) {
    return escaped(text);
  }
  return highlighter.highlight(text, { language, ignoreIllegals: true }).value;
}

function plainElement(text) {
  const pieces = text.match(PIECES) ?? [];
  return `<div class="plain">${pieces.map((one) => `<p>${escaped(one)}</p>`).join("")}</div>`;
}

const link = (address, content) =>
  LINKED.test(address)
    ? `<a href="${escaped(address)}" target="_blank" rel="noopener noreferrer">${content}</a>`
    : content;

const renderer = {
  heading({ tokens, depth }) {
    const level = Math.min(depth + 2, 6);
    return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
  },
  html: ({ text, block }) => (block ? plainElement(text.trim()) : escaped(text)),
  link({ href, tokens }) {
    return link(href, this.parser.parseInline(tokens));
  },
  image: ({ href, text }) => link(href, escaped(text || href)),
  checkbox: ({ checked }) =>
    `<input type="checkbox" disabled aria-label="Done"${checked ? " checked" : ""}> `,
  code({ text, lang }) {
    const language = /^[\w+#.-]*/.exec(lang ?? "")[0].slice(0, 30);
    const content = coloured(text, language.toLowerCase());
    return (
      `<div class="code"><div class="code-bar"><span>${escaped(language)}</span></div>` +
      `<pre tabindex="0" role="region" aria-label="Code"><code>${content}</code></pre></div>`
    );
  },
};

const marked = new Marked({ gfm: true, breaks: true });
marked.use({ renderer, extensions: formulaSyntax(() => isOpen) });

const plain = (raw) => ({ type: "html", raw, text: raw, block: true });

export const isTooLong = ({ type, raw }) => raw.length > (LONGEST_OF_TYPE[type] ?? LONGEST);

function inlined(lexer) {
  for (const { src, tokens } of lexer.inlineQueue) {
    if (src.length > LONGEST_INLINE) {
      tokens.push({ type: "text", raw: src, text: src });
    } else {
      lexer.inlineTokens(src, tokens);
    }
  }
}

export function blocksOf(text, links, isMoreToCome) {
  if (TOO_DEEP.test(text)) {
    return [plain(text)];
  }
  const lexer = new Lexer(marked.defaults);
  lexer.tokens.links = links;
  isOpen = isMoreToCome;
  lexer.blockTokens(text, lexer.tokens);
  inlined(lexer);
  isOpen = false;
  return lexer.tokens.map((token) => (isTooLong(token) ? plain(token.raw) : token));
}

function wrap(table) {
  const frame = make("div", "table");
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "Table");
  for (const cell of table.querySelectorAll("td")) {
    cell.classList.toggle("long", cell.textContent.length > LONG_CELL);
  }
  table.replaceWith(frame);
  frame.append(table);
}

function copyButton() {
  const button = make("button", "copy", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", "Copy code");
  return button;
}

function draw(formula, drawn) {
  const source = formula.outerHTML;
  if (!drawn.has(source)) {
    drawFormula(formula);
    drawn.set(source, formula.cloneNode(true));
  } else {
    formula.replaceWith(drawn.get(source).cloneNode(true));
  }
}

export function render(token, drawn) {
  const fragment = globalThis.DOMPurify.sanitize(marked.parser([token]), SANITISED);
  const formulas = [...fragment.querySelectorAll(".formula")];
  const bars = [...fragment.querySelectorAll(".code-bar")];
  const isColourless = highlighter === null && bars.some((bar) => bar.textContent !== "");
  const isUndrawn = !canDrawFormulas() && formulas.length > 0;
  fragment.querySelectorAll("table").forEach(wrap);
  bars.forEach((bar) => bar.append(copyButton()));
  if (!isUndrawn) {
    formulas.forEach((formula) => draw(formula, drawn));
  }
  return {
    node: fragment.firstElementChild,
    missing: [...(isColourless ? [loadHighlighter()] : []), ...(isUndrawn ? [loadFormulas()] : [])],
  };
}

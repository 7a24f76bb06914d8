import { copyText } from "./clipboard.js";
import { make } from "./elements.js";
import { blocksOf, isTooLong, render } from "./markdown.js";

const WINDOW = 8_000;
const MOST_BLOCKS = 50;
const LONGEST_MARKDOWN = 120_000;
const LONGEST_PLAIN = 4_000;
const MOST_PLAIN = 4;
const BUDGET_MS = 16;
const FINISH_BUDGET_MS = 50;
const PAUSE_MS = 40;
const PAUSE_PER_WORK = 4;
const COPIED_MS = 2000;

const isShown = ({ type }) => type !== "space" && type !== "def";

function isOpaque(old, young) {
  const isBar = old.className === "code-bar" && young.className === "code-bar";
  return isBar && old.firstChild.textContent === young.firstChild.textContent;
}

function isSameKind(old, young) {
  const isDrawn = old.nodeType === Node.ELEMENT_NODE && old.classList.contains("formula");
  return !isDrawn && old.cloneNode().isEqualNode(young.cloneNode());
}

function patch(old, young) {
  if (isOpaque(old, young) || old.isEqualNode(young)) {
    return old;
  }
  if (old.nodeType === Node.TEXT_NODE && young.nodeType === Node.TEXT_NODE) {
    old.data = young.data;
    return old;
  }
  if (!isSameKind(old, young)) {
    old.replaceWith(young);
    return young;
  }
  const [kept, wanted] = [[...old.childNodes], [...young.childNodes]];
  kept.slice(wanted.length).forEach((node) => node.remove());
  kept.slice(0, wanted.length).forEach((node, at) => patch(node, wanted[at]));
  old.append(...wanted.slice(kept.length));
  return old;
}

function countOfFinished(tokens) {
  const shown = tokens.flatMap((token, at) => (isShown(token) ? [at] : []));
  const last = shown.at(-1) ?? 0;
  return tokens[last]?.raw.includes("\n") ? last : (shown.at(-2) ?? 0);
}

async function copyFrom({ target }) {
  const button = target.closest(".copy");
  if (button === null) {
    return;
  }
  await copyText(button.closest(".code").querySelector("code").textContent.replace(/\n$/, ""));
  button.textContent = "Copied";
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => {
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy code");
  }, COPIED_MS);
}

export class MarkdownView {
  text = "";
  links = Object.create(null);
  drawn = new Map();
  timer = null;
  rested = 0;

  constructor(container) {
    this.container = container;
    container.classList.add("markdown");
    container.addEventListener("click", copyFrom);
    this.restart();
  }

  restart() {
    this.done = 0;
    this.window = WINDOW;
    this.open = [];
    this.waiting = new Set();
    this.plain = null;
    this.isPlain = false;
    this.isFinished = false;
    this.container.replaceChildren();
  }

  update(text) {
    this.take(text);
    if (this.timer === null) {
      this.schedule();
    }
  }

  finish(text = this.text) {
    this.take(text);
    this.drawToTheEnd();
    if (this.timer === null && Object.keys(this.links).length > 0) {
      this.restart();
      this.drawToTheEnd();
    }
  }

  drawToTheEnd() {
    this.isFinished = true;
    this.work(FINISH_BUDGET_MS);
  }

  take(text) {
    if (this.isFinished) {
      this.restart();
    }
    this.text = text;
    this.source = text.includes("\r") ? text.replace(/\r\n?/g, "\n") : text;
  }

  schedule() {
    const pause = this.rested - performance.now();
    if (pause <= 0) {
      this.work(BUDGET_MS);
    } else {
      this.timer = setTimeout(() => this.work(BUDGET_MS), pause);
    }
  }

  work(budget) {
    clearTimeout(this.timer);
    this.timer = null;
    const began = performance.now();
    let isMore = true;
    while (isMore && performance.now() - began < budget) {
      isMore = this.step();
      if (this.isPlain) {
        break;
      }
    }
    const now = performance.now();
    const share = this.isFinished ? 1 : PAUSE_PER_WORK;
    this.rested = now + Math.max(PAUSE_MS, share * (now - began));
    if (isMore) {
      this.schedule();
    }
  }

  step() {
    if (this.isPlain || this.done >= LONGEST_MARKDOWN) {
      return this.addPlain();
    }
    try {
      return this.addBlocks();
    } catch {
      this.isPlain = true;
      return true;
    }
  }

  addBlocks() {
    const text = this.source.slice(this.done, this.done + this.window);
    const isWhole = this.done + text.length === this.source.length;
    const isLast = isWhole && this.isFinished;
    const found = blocksOf(text, { ...this.links }, !isLast);
    const tokens = found.slice(0, MOST_BLOCKS);
    const isAll = isWhole && tokens.length === found.length;
    const count = isLast || tokens.length < found.length ? tokens.length : countOfFinished(tokens);
    if (count === 0 && !isWhole) {
      this.window *= 2;
      this.isPlain = isTooLong({ ...found.find(isShown), raw: text });
      return true;
    }
    this.show(isAll ? tokens : tokens.slice(0, count));
    this.settle(tokens.slice(0, count));
    return !isAll;
  }

  show(tokens) {
    const shown = tokens.filter(isShown);
    this.open.splice(shown.length).forEach(({ node }) => node.remove());
    shown.forEach((token, at) => this.showBlock(token, at));
  }

  showBlock(token, at) {
    const old = this.open[at];
    if (old?.token.raw === token.raw && old.token.type === token.type && !this.isFinished) {
      return;
    }
    this.open[at] = this.draw({ token, node: old?.node ?? null });
    this.waiting.delete(old);
  }

  draw(block) {
    const { node, missing } = render(block.token, this.drawn);
    if (block.node === null) {
      this.container.append(node);
      block.node = node;
    } else {
      block.node = patch(block.node, node);
    }
    if (missing.length > 0) {
      this.waiting.add(block);
      Promise.all(missing).then(() => this.drawAgain(block), () => undefined);
    }
    return block;
  }

  drawAgain(block) {
    if (this.waiting.delete(block)) {
      this.draw(block);
    }
  }

  settle(tokens) {
    for (const { tag, href, title } of tokens.filter(({ type }) => type === "def")) {
      this.links[tag] ??= { href, title };
    }
    if (tokens.length > 0) {
      this.done += tokens.reduce((sum, { raw }) => sum + raw.length, 0);
      this.open.splice(0, tokens.filter(isShown).length);
      this.window = WINDOW;
    }
  }

  addPlain() {
    this.isPlain = true;
    this.open.splice(0).forEach(({ node }) => node.remove());
    for (let piece = 0; piece < MOST_PLAIN && this.done < this.source.length; piece += 1) {
      this.addPiece(this.source.slice(this.done, this.done + LONGEST_PLAIN));
    }
    return this.done < this.source.length;
  }

  addPiece(piece) {
    const isCut = this.done + piece.length < this.source.length;
    const text = (isCut && piece.slice(0, piece.lastIndexOf("\n") + 1)) || piece;
    if (this.plain === null || this.plain.length + text.length > LONGEST_PLAIN) {
      this.plain = document.createTextNode("");
      this.container.append(make("p", "plain"));
      this.container.lastChild.append(this.plain);
    }
    this.plain.appendData(text);
    this.done += text.length;
  }
}

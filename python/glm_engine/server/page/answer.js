import { make, number } from "./elements.js";
import { MarkdownView } from "./view.js";

const LEAST_RATED_MS = 200;

export class Turn {
  constructor(question) {
    this.question = question;
    this.node = make("article", "turn");
    this.answer = make("div", "answer");
    const asked = make("p", "asked", question);
    asked.prepend(make("span", "unseen", "You: "));
    this.node.append(asked, this.answer);
  }

  begin() {
    this.content = "";
    this.isUsable = false;
    this.block = null;
    this.calls = new Map();
    this.usage = null;
    this.reason = null;
    this.began = performance.now();
    this.first = null;
    this.answer.replaceChildren();
    this.answer.setAttribute("aria-busy", "true");
  }

  take(chunk) {
    this.usage = chunk.usage ?? this.usage;
    for (const { delta, finish_reason } of chunk.choices ?? []) {
      this.reason = finish_reason ?? this.reason;
      this.takeDelta(delta ?? {});
    }
  }

  takeDelta({ reasoning_content, content, tool_calls }) {
    if (reasoning_content || content || tool_calls?.length) {
      this.last = performance.now();
      this.first ??= this.last;
    }
    if (reasoning_content) {
      this.add("thought", reasoning_content);
    }
    if (content) {
      this.content += content;
      this.add("reply", content);
    }
    for (const call of tool_calls ?? []) {
      this.takeCall(call);
    }
  }

  add(kind, text) {
    if (this.block?.kind !== kind) {
      this.closeBlock();
      const body = make("div", "text");
      const node = kind === "thought" ? thoughtNode(body) : body;
      this.block = { kind, node, view: new MarkdownView(body), began: performance.now() };
      this.answer.append(node);
    }
    this.block.view.update(this.block.view.text + text);
  }

  takeCall({ index = 0, function: named = {} }) {
    if (!this.calls.has(index)) {
      this.closeBlock();
      const node = callNode();
      this.answer.append(node);
      this.calls.set(index, node);
    }
    const node = this.calls.get(index);
    node.querySelector("code").append(named.name ?? "");
    node.querySelector("pre").append(named.arguments ?? "");
  }

  closeBlock() {
    this.block?.view.finish();
    if (this.block?.kind === "thought") {
      const seconds = (performance.now() - this.block.began) / 1000;
      this.block.node.firstChild.textContent = `Thought for ${seconds.toFixed(1)} s`;
      this.block.node.open = false;
    }
    this.block = null;
  }

  close(note) {
    this.closeBlock();
    this.isUsable = this.content !== "";
    this.answer.append(make("p", "facts", this.facts(note)));
    this.answer.setAttribute("aria-busy", "false");
  }

  finish() {
    this.close({ length: "cut at the most tokens", tool_calls: "asks for a tool" }[this.reason]);
  }

  facts(note) {
    const count = this.usage?.completion_tokens;
    const facts = note ? [note] : [];
    if (count !== undefined) {
      facts.push(`${count} ${count === 1 ? "token" : "tokens"}`);
    }
    if (this.first !== null) {
      facts.push(`first after ${number(this.first - this.began)}\u00a0ms`);
    }
    if (count > 1 && this.last - this.first > LEAST_RATED_MS) {
      facts.push(`${number(((count - 1) * 1000) / (this.last - this.first))}\u00a0tokens/s`);
    }
    return facts.join(" · ");
  }

  fail(error, retry) {
    const trouble = make("div", "trouble");
    const button = make("button", "quiet", "Try again");
    trouble.setAttribute("role", "alert");
    button.type = "button";
    button.addEventListener("click", retry);
    trouble.append(make("p", "", error.message), button);
    this.closeBlock();
    this.answer.append(trouble);
    this.answer.setAttribute("aria-busy", "false");
  }
}

function thoughtNode(body) {
  const node = make("details", "thought");
  node.open = true;
  node.append(make("summary", "", "Thinking"), body);
  return node;
}

function callNode() {
  const node = make("details", "call");
  const summary = make("summary", "", "Tool call");
  node.open = true;
  summary.append(make("code", ""));
  node.append(summary, make("pre", ""));
  return node;
}

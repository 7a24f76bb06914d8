import { copyAndSay } from "./clipboard.js";
import { button, counted, make, number, setText, whole } from "./elements.js";
import { Versions } from "./versions.js";
import { MarkdownView } from "./view.js";

const ENDINGS = {
  length: "Max tokens reached",
  tool_calls: "asks for a tool",
};

function write(view, text, isRunning) {
  if (isRunning && view.text !== text) {
    view.update(text);
  } else if (!isRunning && !(view.isFinished && view.text === text)) {
    view.finish(text);
  }
}

function ending({ state, finish_reason }, isRunning) {
  if (isRunning) {
    return [];
  }
  if (state === "running") {
    return ["not finished"];
  }
  return state === "stopped" ? ["stopped"] : [ENDINGS[finish_reason]].filter(Boolean);
}

function factsOf(message, isRunning) {
  const { usage, first_token_ms, tokens_per_second } = message;
  const facts = ending(message, isRunning);
  if (usage !== null) {
    facts.push(counted(usage.completion_tokens, "token"));
  }
  if (tokens_per_second !== null) {
    facts.push(`${number(tokens_per_second)}\u00a0tokens/s`);
  }
  if (first_token_ms !== null) {
    facts.push(`first token after ${number(first_token_ms)}\u00a0ms`);
  }
  if (usage !== null) {
    const cached = usage.cached_tokens > 0 ? `, ${whole(usage.cached_tokens)} cached` : "";
    facts.push(`prompt ${counted(usage.prompt_tokens, "token")}${cached}`);
  }
  return facts.join(" · ");
}

function prettyPrinted(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function thoughtNode() {
  const node = make("details", "thought");
  node.append(make("summary", "", "Thinking"), make("div", "text"));
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

function isContinuable({ content, tool_calls, state, finish_reason }) {
  const hasEnded = state === "done" && finish_reason !== "length";
  return !hasEnded && content !== "" && tool_calls.length === 0;
}

export class AnswerView {
  thought = null;
  text = null;
  calls = [];
  trouble = null;

  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.node = make("div", "answer");
    this.versions = new Versions(actions.select);
    this.copy = button("action", "Copy", () => copyAndSay(message.content, this.copy));
    this.regenerate = button("action", "Regenerate", () => actions.regenerate(message));
    this.goOn = button("action", "Continue", () => actions.goOn(message));
    this.facts = make("p", "facts");
    const under = make("div", "under");
    under.setAttribute("aria-live", "off");
    under.append(this.versions.node, this.copy, this.regenerate, this.goOn, this.facts);
    this.node.append(under);
    this.under = under;
  }

  show(versions, isRunning) {
    this.showThought(isRunning);
    this.showText(isRunning);
    this.showCalls(isRunning);
    this.showTrouble();
    this.versions.show(versions, this.message);
    this.versions.node.hidden ||= isRunning;
    this.copy.hidden = isRunning || this.message.content === "";
    this.regenerate.hidden = isRunning || this.message.error !== null;
    this.goOn.hidden = isRunning || !isContinuable(this.message);
    setText(this.facts, factsOf(this.message, isRunning));
    this.node.setAttribute("aria-busy", String(isRunning));
  }

  setBusy(isBusy) {
    for (const one of [this.regenerate, this.goOn]) {
      one.disabled = isBusy;
    }
  }

  showThought(isRunning) {
    const { reasoning_content, reasoning_ms, content, tool_calls } = this.message;
    if (reasoning_content === "") {
      return;
    }
    const isThinking = isRunning && content === "" && tool_calls.length === 0;
    if (this.thought === null) {
      this.thought = thoughtNode();
      this.thought.open = isThinking;
      this.thinking = new MarkdownView(this.thought.lastChild);
      this.node.prepend(this.thought);
    }
    const summary = this.thought.firstChild;
    const seconds = number(reasoning_ms / 1000, 1);
    write(this.thinking, reasoning_content, isThinking);
    if (!isThinking && summary.textContent === "Thinking") {
      this.thought.open = false;
    }
    setText(summary, isThinking ? "Thinking" : `Thought for ${seconds}\u00a0s`);
  }

  showText(isRunning) {
    if (this.message.content === "") {
      return;
    }
    if (this.text === null) {
      const container = make("div", "text");
      (this.calls[0] ?? this.under).before(container);
      this.text = new MarkdownView(container);
    }
    write(this.text, this.message.content, isRunning);
  }

  showCalls(isRunning) {
    this.message.tool_calls.forEach(({ name, arguments: text }, at) => {
      if (this.calls[at] === undefined) {
        this.calls[at] = callNode();
        this.under.before(this.calls[at]);
      }
      setText(this.calls[at].querySelector("code"), name);
      setText(this.calls[at].querySelector("pre"), isRunning ? text : prettyPrinted(text));
    });
  }

  showTrouble() {
    const { error } = this.message;
    if (this.trouble?.firstChild.textContent === error) {
      return;
    }
    this.trouble?.remove();
    this.trouble = null;
    if (error !== null) {
      this.trouble = make("div", "trouble");
      this.trouble.setAttribute("role", "alert");
      const retry = button("quiet", "Try again", () => this.actions.retry(this.message));
      this.trouble.append(make("p", "", error), retry);
      this.under.before(this.trouble);
    }
  }
}

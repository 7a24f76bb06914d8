const LEAST_RATED_MS = 200;

export const EMPTY_ANSWER = {
  content: "",
  reasoning_content: "",
  reasoning_ms: 0,
  tool_calls: [],
  state: "running",
  finish_reason: null,
  usage: null,
  first_token_ms: null,
  tokens_per_second: null,
  error: null,
};

function added(before, usage) {
  const earlier = before?.completion_tokens ?? 0;
  return {
    prompt_tokens: (usage.prompt_tokens ?? 0) - earlier,
    cached_tokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    completion_tokens: (usage.completion_tokens ?? 0) + earlier,
  };
}

export class Answering {
  first = null;
  last = null;
  thinkingSince = null;

  constructor(message) {
    this.message = message;
    this.before = message.usage;
    this.began = performance.now();
    Object.assign(message, { state: "running", finish_reason: null, error: null });
  }

  take({ usage, choices }) {
    for (const { delta, finish_reason } of choices ?? []) {
      this.message.finish_reason = finish_reason ?? this.message.finish_reason;
      this.takeDelta(delta ?? {});
    }
    if (usage) {
      this.takeUsage(usage);
    }
  }

  takeDelta({ reasoning_content, content, tool_calls }) {
    if (!reasoning_content && !content && !tool_calls?.length) {
      return;
    }
    this.last = performance.now();
    this.first ??= this.last;
    this.message.first_token_ms = this.first - this.began;
    this.takeThought(reasoning_content);
    this.message.content += content ?? "";
    for (const one of tool_calls ?? []) {
      this.takeCall(one);
    }
  }

  takeThought(text) {
    if (text) {
      this.thinkingSince ??= this.last - this.message.reasoning_ms;
      this.message.reasoning_content += text;
    }
    if (this.thinkingSince !== null) {
      this.message.reasoning_ms = this.last - this.thinkingSince;
    }
    if (!text) {
      this.thinkingSince = null;
    }
  }

  takeCall({ index = 0, function: named = {} }) {
    const calls = this.message.tool_calls;
    calls[index] ??= { name: "", arguments: "" };
    calls[index].name += named.name ?? "";
    calls[index].arguments += named.arguments ?? "";
  }

  takeUsage(usage) {
    this.message.usage = added(this.before, usage);
    const count = usage.completion_tokens;
    const span = this.last - this.first;
    if (count > 1 && span > LEAST_RATED_MS) {
      this.message.tokens_per_second = ((count - 1) * 1000) / span;
    }
  }

  finish() {
    this.message.state = "done";
  }

  stop() {
    this.message.state = "stopped";
  }

  fail(error) {
    Object.assign(this.message, { state: "failed", error: error.message });
  }
}

import { Answering } from "./answering.js";
import { model } from "./model.js";
import { chosenFields, systemPrompt } from "./settings.js";
import { chunksOf } from "./stream.js";

const SAVE_MS = 1000;

const sent = ({ role, content }) => ({ role, content });

function answered(path) {
  return path.flatMap((one, at) =>
    one.role === "assistant" && one.content !== "" ? [path[at - 1], one] : [],
  );
}

function messagesFor(path) {
  const question = path.at(-1);
  const system = systemPrompt();
  return [
    ...(system ? [{ role: "system", content: system }] : []),
    ...answered(path.slice(0, -1)).map(sent),
    sent(question),
  ];
}

function continued({ content, reasoning_content }) {
  const thought = reasoning_content ? { reasoning_content } : {};
  return { role: "assistant", content, ...thought };
}

function requestFor(conversation, answer) {
  const messages = messagesFor(conversation.pathTo(conversation.parentOf(answer)));
  const request = {
    model: model.name,
    messages,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    ...chosenFields(),
  };
  if (answer.content === "") {
    return request;
  }
  messages.push(continued(answer));
  return { ...request, add_generation_prompt: false, continue_final_message: true };
}

export class Runs {
  active = new Map();

  constructor({ onChange, save }) {
    this.onChange = onChange;
    this.save = save;
  }

  isActive({ id }) {
    return this.active.has(id);
  }

  isWriting(message) {
    return this.active.get(message.conversation)?.answer === message;
  }

  stop({ id }) {
    this.active.get(id)?.controller.abort();
  }

  conversations() {
    return [...this.active.values()].map(({ conversation }) => conversation);
  }

  async start(conversation, answer) {
    const controller = new AbortController();
    const request = requestFor(conversation, answer);
    const answering = new Answering(answer);
    this.active.set(conversation.id, { controller, conversation, answer });
    this.keep(conversation, answer);
    this.onChange(conversation, answer);
    try {
      await this.follow(conversation, answering, chunksOf(request, controller.signal));
      answering.finish();
    } catch (error) {
      if (controller.signal.aborted) {
        answering.stop();
      } else {
        answering.fail(error);
      }
    }
    this.active.delete(conversation.id);
    this.keep(conversation, answer);
    this.onChange(conversation, answer);
  }

  async follow(conversation, answering, chunks) {
    let saved = performance.now();
    for await (const chunk of chunks) {
      answering.take(chunk);
      this.onChange(conversation, answering.message);
      if (performance.now() - saved > SAVE_MS) {
        saved = performance.now();
        this.keep(conversation, answering.message);
      }
    }
  }

  keep(conversation, answer) {
    conversation.touch(answer);
    this.save(conversation);
  }
}

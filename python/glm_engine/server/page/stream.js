import { call, reached } from "./server.js";

let heard = -Infinity;

export const silenceMs = () => performance.now() - heard;

class EventStream {
  rest = "";
  data = [];

  push(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    return lines.map((line) => this.take(line)).filter((event) => event !== null);
  }

  take(line) {
    if (line.startsWith("data:")) {
      this.data.push(line.slice(line[5] === " " ? 6 : 5));
    }
    if (line !== "" || this.data.length === 0) {
      return null;
    }
    const event = this.data.join("\n");
    this.data = [];
    return event;
  }
}

async function* events(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const stream = new EventStream();
  try {
    for (;;) {
      const { done, value } = await reached(reader.read());
      heard = performance.now();
      if (done) {
        yield* stream.push(`${decoder.decode()}\n`);
        return;
      }
      yield* stream.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    heard = -Infinity;
  }
}

export async function* chunksOf(request, signal) {
  const body = JSON.stringify(request);
  const response = await call("/v1/chat/completions", { method: "POST", body, signal });
  for await (const data of events(response.body)) {
    if (data === "[DONE]") {
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) {
      throw new Error(chunk.error.message);
    }
    yield chunk;
  }
  throw new Error("The connection ended before the answer did.");
}

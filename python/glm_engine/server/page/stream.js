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

async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new Error("The server cannot be reached.", { cause: error });
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

export async function refusal(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered with status ${response.status}. ${text.slice(0, 200)}`;
  }
}

export async function* chunksOf(request, headers, signal) {
  headers.set("content-type", "application/json");
  const body = JSON.stringify(request);
  const sent = fetch("/v1/chat/completions", { method: "POST", headers, body, signal });
  const response = await reached(sent);
  if (!response.ok) {
    throw new Error(await refusal(response));
  }
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

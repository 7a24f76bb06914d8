import { askForKey, authorised } from "./api_key.js";

export async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") {
      throw error;
    }
    throw new Error("The server cannot be reached.", { cause: error });
  }
}

async function refusal(response) {
  const text = await response.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `The server answered with status ${response.status}. ${text.slice(0, 200)}`;
  }
}

export async function call(path, { asksForKey = true, ...options } = {}) {
  for (;;) {
    const began = performance.now();
    const headers = authorised();
    const sent = headers.get("authorization");
    if (options.body) {
      headers.set("content-type", "application/json");
    }
    const response = await reached(fetch(path, { ...options, headers }));
    if (response.ok) {
      return response;
    }
    const message = await refusal(response);
    if (response.status !== 401 || !asksForKey || !(await askForKey(sent, began))) {
      throw new Error(message);
    }
  }
}

import { EMPTY_ANSWER } from "./answering.js";

const FORMAT = "glm-engine conversations";
const VERSION = 1;
const MAX_ID_LENGTH = 64;
const STATES = ["running", "done", "stopped", "failed"];

const isText = (value) => typeof value === "string";
const isNumber = (value) => Number.isFinite(value);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isTitle = (value) => isText(value) && value.trim() !== "";
const isId = (value) => isText(value) && value.length > 0 && value.length <= MAX_ID_LENGTH;
const nullOr = (test) => (value) => value === null || test(value);
const isCall = (value) => isObject(value) && isText(value.name) && isText(value.arguments);
const isUsage = (value) =>
  isObject(value) &&
  ["prompt_tokens", "cached_tokens", "completion_tokens"].every((one) => isNumber(value[one]));

const HEADER = { id: isId, title: isTitle, created: isNumber, updated: isNumber, leaf: nullOr(isId) };
const PLACE = { id: isId, parent: nullOr(isId), created: isNumber };
const QUESTION = { ...PLACE, content: isText };
const ANSWER = {
  ...QUESTION,
  reasoning_content: isText,
  reasoning_ms: isNumber,
  tool_calls: (value) => Array.isArray(value) && value.every(isCall),
  state: (value) => STATES.includes(value),
  finish_reason: nullOr(isText),
  usage: nullOr(isUsage),
  first_token_ms: nullOr(isNumber),
  tokens_per_second: nullOr(isNumber),
  error: nullOr(isText),
};
const KINDS = { user: [QUESTION, {}, "assistant"], assistant: [ANSWER, EMPTY_ANSWER, "user"] };

function demand(isTrue, text) {
  if (!isTrue) {
    throw new Error(`The file was not imported: ${text}.`);
  }
}

function picked(value, fields, where) {
  const names = Object.keys(fields);
  for (const name of names) {
    demand(fields[name](value[name]), `${where} has no valid ${name}`);
  }
  return Object.fromEntries(names.map((name) => [name, value[name]]));
}

function messageOf(value, conversation, where) {
  demand(isObject(value) && Object.hasOwn(KINDS, value.role), `${where} has no valid role`);
  const [fields, defaults] = KINDS[value.role];
  const found = picked({ ...defaults, ...value }, fields, where);
  return { ...found, role: value.role, conversation };
}

function checkTree(messages, leaf, where) {
  const known = new Map(messages.map((one) => [one.id, one]));
  const children = Map.groupBy(messages, ({ parent }) => parent);
  const reached = [...(children.get(null) ?? [])];
  demand(known.size === messages.length, `${where} has two messages of one id`);
  for (const { parent, role } of messages) {
    const [, , above] = KINDS[role];
    const isRoot = parent === null && role === "user";
    demand(isRoot || known.get(parent)?.role === above, `${where} has a message out of place`);
  }
  for (const { id } of reached) {
    reached.push(...(children.get(id) ?? []));
  }
  demand(reached.length === messages.length, `${where} has messages in a circle`);
  demand(known.get(leaf)?.role === "assistant", `${where} has no valid leaf`);
}

function recordOf(value, at) {
  const where = `conversation ${at + 1}`;
  demand(isObject(value) && Array.isArray(value.messages), `${where} has no messages`);
  const header = picked(value, HEADER, where);
  const messages = value.messages.map((one, place) =>
    messageOf(one, header.id, `${where}, message ${place + 1}`),
  );
  checkTree(messages, header.leaf, where);
  return { header, messages };
}

export function recordsOf(text) {
  let content = null;
  try {
    content = JSON.parse(text);
  } catch {
    demand(false, "it is not JSON");
  }
  demand(content?.format === FORMAT, `its format is not “${FORMAT}”`);
  demand(content.version === VERSION, `its version is not ${VERSION}`);
  demand(Array.isArray(content.conversations), "it has no conversations");
  const records = content.conversations.map(recordOf);
  const ids = new Set(records.map(({ header }) => header.id));
  const messageIds = records.flatMap(({ messages }) => messages.map(({ id }) => id));
  demand(ids.size === records.length, "two conversations have one id");
  demand(
    new Set(messageIds).size === messageIds.length,
    "two conversations have messages of one id",
  );
  return records;
}

export function textOf(records) {
  const conversations = records.map(({ header, messages }) => ({
    ...header,
    messages: messages
      .toSorted((one, other) => one.created - other.created)
      .map(({ conversation, ...rest }) => rest),
  }));
  return JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 2);
}

export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}

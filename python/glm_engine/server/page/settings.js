import { find, setText, whole } from "./elements.js";
import { model } from "./model.js";
import { isShown, showNotice } from "./notice.js";
import { lasting } from "./storage.js";

const SETTINGS = "glm.settings";
const UNKEPT = "The browser did not keep these settings: a reload loses them.";
const NEUTRAL = {
  presence_penalty: "0",
  frequency_penalty: "0",
  seed: "random",
  thinking_token_budget: "none",
};

const form = find("settings-form");
const fields = [...form.elements].filter(({ name }) => name);
const numbers = fields.filter(({ type }) => type === "number");
const { system, stop, thinking } = form.elements;

export const systemPrompt = () => system.value.trim();

export function chosenFields() {
  const chosen = numbers.filter(({ value }) => value !== "");
  const request = Object.fromEntries(chosen.map((one) => [one.name, one.valueAsNumber]));
  const stops = stop.value.split("\n").filter(Boolean);
  if (stops.length > 0) {
    request.stop = stops;
  }
  if (thinking.value !== "") {
    request.chat_template_kwargs = { enable_thinking: thinking.value === "on" };
  }
  return request;
}

function kept() {
  try {
    return Object(JSON.parse(lasting.getItem(SETTINGS)));
  } catch {
    return {};
  }
}

function keep(changed) {
  const isKept = lasting.setItem(SETTINGS, JSON.stringify({ ...kept(), ...changed }));
  if (!isKept && !isShown(UNKEPT)) {
    showNotice(UNKEPT);
  }
}

function isText(value) {
  return typeof value === "string";
}

function showChanged() {
  const changed = fields.filter((one) => one.value !== "" && one !== system).length;
  setText(find("changed"), changed > 0 ? `${changed} changed` : "");
  find("reset").disabled = changed === 0;
  for (const one of numbers) {
    one.nextElementSibling.hidden = one.value !== "" || one.validity.badInput;
  }
}

function reset() {
  const changed = fields.filter((one) => one !== system);
  for (const one of changed) {
    one.value = "";
  }
  keep(Object.fromEntries(changed.map(({ name }) => [name, ""])));
  showChanged();
  find("system").focus();
}

export function showDefaults() {
  const most = model.contextLength === null ? "" : `≤ ${whole(model.contextLength)}`;
  const shown = { max_tokens: most, ...NEUTRAL, ...model.defaults };
  for (const one of numbers) {
    setText(one.nextElementSibling, String(shown[one.name] ?? ""));
  }
}

export function openSettings() {
  const stored = kept();
  for (const one of fields.filter(({ name }) => isText(stored[name]))) {
    one.value = stored[one.name];
  }
  showChanged();
  form.addEventListener("input", ({ target }) => {
    keep({ [target.name]: target.value });
    showChanged();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  find("reset").addEventListener("click", reset);
}

import { find } from "./elements.js";

const SETTINGS = "glm.settings";
const KEY = "glm.key";
const THEME = "glm.theme";
const KEPT = ["temperature", "max_tokens", "system"];
const NOTHING_KEPT = { getItem: () => null, setItem: () => undefined };

const form = find("settings-form");
const lasting = storage("localStorage");
const ofThisTab = storage("sessionStorage");
const systemTheme = matchMedia("(prefers-color-scheme: dark)");

export const settings = form.elements;

function storage(kind) {
  try {
    return window[kind];
  } catch {
    return NOTHING_KEPT;
  }
}

export function credentials() {
  const key = settings.key.value.trim();
  try {
    return new Headers(key ? { authorization: `Bearer ${key}` } : {});
  } catch (error) {
    throw new Error("The API key has characters that cannot be sent.", { cause: error });
  }
}

export function sampling() {
  const wanted = [settings.temperature, settings.max_tokens].filter(({ value }) => value !== "");
  return Object.fromEntries(wanted.map(({ name, valueAsNumber }) => [name, valueAsNumber]));
}

function keptSettings() {
  try {
    return Object(JSON.parse(lasting.getItem(SETTINGS)));
  } catch {
    return {};
  }
}

function recall() {
  const kept = keptSettings();
  for (const name of KEPT.filter((one) => one in kept)) {
    settings[name].value = kept[name];
  }
  settings.thinking.checked = kept.thinking ?? false;
  settings.key.value = ofThisTab.getItem(KEY) ?? "";
}

function keep({ target }) {
  if (target === settings.key) {
    ofThisTab.setItem(KEY, target.value);
    return;
  }
  const value = target === settings.thinking ? target.checked : target.value;
  lasting.setItem(SETTINGS, JSON.stringify({ ...keptSettings(), [target.name]: value }));
}

function theme() {
  return lasting.getItem(THEME) ?? (systemTheme.matches ? "dark" : "light");
}

function showTheme(chosen = theme()) {
  document.documentElement.style.colorScheme = chosen;
  const other = chosen === "dark" ? "Light" : "Dark";
  find("theme").textContent = other;
  find("theme").setAttribute("aria-label", `${other} colours`);
}

export function openSettings() {
  recall();
  showTheme();
  form.addEventListener("input", keep);
  form.addEventListener("submit", (event) => event.preventDefault());
  systemTheme.addEventListener("change", () => showTheme());
  find("theme").addEventListener("click", () => {
    const chosen = document.documentElement.style.colorScheme === "dark" ? "light" : "dark";
    lasting.setItem(THEME, chosen);
    showTheme(chosen);
  });
}

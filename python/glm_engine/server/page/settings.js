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
  return new Headers(key ? { authorization: `Bearer ${key}` } : {});
}

export function sampling() {
  const wanted = [settings.temperature, settings.max_tokens].filter(({ value }) => value !== "");
  return Object.fromEntries(wanted.map(({ name, valueAsNumber }) => [name, valueAsNumber]));
}

function keptSettings() {
  try {
    return JSON.parse(lasting.getItem(SETTINGS)) ?? {};
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

function keep() {
  const kept = Object.fromEntries(KEPT.map((name) => [name, settings[name].value]));
  kept.thinking = settings.thinking.checked;
  lasting.setItem(SETTINGS, JSON.stringify(kept));
  ofThisTab.setItem(KEY, settings.key.value);
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

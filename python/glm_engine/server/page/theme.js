import { find } from "./elements.js";
import { lasting } from "./storage.js";

const THEME = "glm.theme";
const systemTheme = matchMedia("(prefers-color-scheme: dark)");

function show(chosen) {
  const other = chosen === "dark" ? "Light" : "Dark";
  document.documentElement.style.colorScheme = chosen;
  find("theme").setAttribute("aria-label", `${other} colours`);
  find("theme").title = `${other} colours`;
}

const ofSystem = () => (systemTheme.matches ? "dark" : "light");

export function openTheme() {
  show(lasting.getItem(THEME) ?? ofSystem());
  systemTheme.addEventListener("change", () => show(lasting.getItem(THEME) ?? ofSystem()));
  find("theme").addEventListener("click", () => {
    const chosen = document.documentElement.style.colorScheme === "dark" ? "light" : "dark";
    lasting.setItem(THEME, chosen);
    show(chosen);
  });
}

export const find = (id) => document.getElementById(id);

export function make(tag, className, text = "") {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
}

export function button(className, label, act) {
  const node = make("button", className, label);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) {
    node.textContent = text;
  }
}

export function number(value, digits = value >= 100 ? 0 : value >= 10 ? 1 : 2) {
  return value.toLocaleString("en", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

export const whole = (count) => number(count, 0);

export const counted = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

export const escaped = (text) =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;");

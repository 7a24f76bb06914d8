import { button, find, make } from "./elements.js";

const notice = find("notice");
const close = button("action", "×", hideNotice);
close.setAttribute("aria-label", "Dismiss");

export function hideNotice() {
  notice.hidePopover();
}

export function showNotice(text, actions = {}) {
  const buttons = Object.entries(actions).map(([label, act]) =>
    button("quiet", label, () => {
      hideNotice();
      act();
    }),
  );
  notice.showPopover();
  notice.replaceChildren(make("p", "", text), ...buttons, close);
  return buttons;
}

export const isShown = (text) =>
  notice.matches(":popover-open") && notice.firstChild.textContent === text;

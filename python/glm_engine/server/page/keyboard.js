const OPEN = "dialog[open], :popover-open";

export const isSendKey = ({ key, shiftKey, isComposing }) =>
  key === "Enter" && !shiftKey && !isComposing;

export const isStopKey = ({ key, isComposing }) =>
  key === "Escape" && !isComposing && document.querySelector(OPEN) === null;

const SHOWN_MS = 2000;

function copySelected(text) {
  const field = document.createElement("textarea");
  const focused = document.activeElement;
  field.className = "unseen";
  field.value = text;
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand("copy");
  field.remove();
  focused?.focus({ preventScroll: true });
  if (!isCopied) {
    throw new Error("The browser does not let this page copy.");
  }
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copySelected(text);
  }
}

export async function copyAndSay(text, button) {
  const label = button.textContent;
  try {
    await copyText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied";
  }
  setTimeout(() => {
    button.textContent = label;
  }, SHOWN_MS);
}

import { find, setText } from "./elements.js";
import { ofThisTab } from "./storage.js";

const KEY = "glm.key";
const NEEDED = "This server asks for an API key.";
const REFUSED = "The server does not accept this key.";
const UNSENDABLE = "The API key has characters that cannot be sent.";

const dialog = find("key-dialog");
const field = find("key");
let key = ofThisTab.getItem(KEY) ?? "";
let asking = null;
let declined = -Infinity;
let onChange = () => undefined;

function headersWith(one) {
  return new Headers(one ? { authorization: `Bearer ${one}` } : {});
}

export const authorised = () => headersWith(key);

const isSendable = (one) => /^[\x20-\x7e]*$/.test(one);

function take(event) {
  event.preventDefault();
  const given = field.value.trim();
  if (!isSendable(given)) {
    setText(find("key-reason"), UNSENDABLE);
    return;
  }
  key = given;
  ofThisTab.setItem(KEY, key);
  dialog.close("taken");
  onChange();
}

function open(reason) {
  setText(find("key-reason"), reason);
  dialog.returnValue = "";
  dialog.showModal();
  field.value = key;
  field.select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "taken"), { once: true });
  });
}

export async function askForKey(sent, began) {
  if (sent !== headersWith(key).get("authorization")) {
    return true;
  }
  if (began < declined) {
    return false;
  }
  asking ??= open(sent === null ? NEEDED : REFUSED);
  const isTaken = await asking;
  asking = null;
  declined = isTaken ? declined : performance.now();
  return isTaken;
}

export function openKeyDialog(listener) {
  onChange = listener;
  find("key-form").addEventListener("submit", take);
  find("key-cancel").addEventListener("click", () => dialog.close());
  find("key-open").addEventListener("click", () => open(""));
}

import { openKeyDialog } from "./api_key.js";
import { Chat } from "./chat.js";
import { openDrawers } from "./drawers.js";
import { find } from "./elements.js";
import { watchGauges } from "./gauges.js";
import { isSendKey, isStopKey } from "./keyboard.js";
import { learnModel } from "./model.js";
import { showNotice } from "./notice.js";
import { openSettings, showDefaults } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { openStore } from "./store.js";
import { openTheme } from "./theme.js";

const UNKEPT = "This browser keeps no conversations here: a reload loses them.";

const prompt = find("prompt");

async function learn(chat) {
  await learnModel();
  showDefaults();
  chat.showContext();
}

function ask(chat, text) {
  if (chat.ask(text)) {
    prompt.value = "";
  }
}

function listenToKeys(chat) {
  prompt.addEventListener("keydown", (event) => {
    if (isSendKey(event)) {
      event.preventDefault();
      ask(chat, prompt.value);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (isStopKey(event)) {
      chat.stop();
    }
  });
}

function listenToButtons(chat) {
  find("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(chat, prompt.value);
  });
  find("stop").addEventListener("click", () => chat.stop());
  find("new").addEventListener("click", () => chat.startAnew());
  for (const opener of find("openers").children) {
    opener.addEventListener("click", () => ask(chat, opener.textContent));
  }
}

function guardAgainstLoss(chat) {
  window.addEventListener("pagehide", () => chat.noteUnfinished());
  window.addEventListener("beforeunload", (event) => {
    if (chat.hasUnsaved()) {
      event.preventDefault();
    }
  });
}

openTheme();
openDrawers();
openSettings();
const store = await openStore();
const chat = new Chat(store);
const sidebar = new Sidebar(store, chat);
const learnQuietly = () => learn(chat).catch(() => undefined);
chat.onListChange = () => sidebar.refresh();
openKeyDialog(learnQuietly);
listenToKeys(chat);
listenToButtons(chat);
if (store.keepsConversations) {
  guardAgainstLoss(chat);
} else {
  showNotice(UNKEPT);
}
watchGauges(learnQuietly);
await chat.openLast();
await sidebar.refresh();

import { EMPTY_ANSWER } from "./answering.js";
import { Conversation } from "./conversation.js";
import { find, setText, whole } from "./elements.js";
import { model } from "./model.js";
import { isShown, showNotice } from "./notice.js";
import { Runs } from "./runs.js";
import { ofThisTab } from "./storage.js";
import { Thread } from "./thread.js";

const CURRENT = "glm.conversation";
const UNFINISHED = "glm.unfinished";
const FULL = "The browser’s storage is full: this conversation is in this tab only. Delete others.";
const UNKEPT = "The browser did not keep this conversation: it is in this tab only.";

const prompt = find("prompt");

export class Chat {
  conversation = new Conversation();
  alive = new Map();
  deleted = new WeakSet();
  saving = new Map();
  onListChange = () => undefined;

  constructor(store) {
    this.store = store;
    this.runs = new Runs({
      onChange: (conversation, message) => this.showChange(conversation, message),
      save: (conversation) => this.save(conversation),
    });
    this.thread = new Thread(this.actions(), this.runs);
    store.onChangeElsewhere((id) => this.takeFromOtherTab(id));
  }

  actions() {
    return {
      focusPrompt: () => prompt.focus(),
      select: (message, step) => this.select(message, step),
      edit: (message, text) => this.askAt(this.conversation.parentOf(message), text),
      regenerate: (message) => this.regenerate(message),
      goOn: (message) => this.run(message),
      retry: (message) => this.retry(message),
    };
  }

  isCurrent(id) {
    return id === this.conversation.id;
  }

  isRunning(id) {
    return this.runs.isActive({ id });
  }

  isBusy() {
    return this.runs.isActive(this.conversation);
  }

  hasUnsaved() {
    return [...this.alive.values()].some(({ unsaved }) => unsaved.size > 0);
  }

  unsavedHeaders() {
    return [...this.alive.values()]
      .filter(({ unsaved }) => unsaved.size > 0)
      .map(({ header }) => header);
  }

  ask(text) {
    return this.askAt(this.conversation.path().at(-1), text);
  }

  askAt(parent, text) {
    if (this.isBusy() || text.trim() === "") {
      return false;
    }
    const question = this.conversation.add("user", parent, { content: text.trim() });
    this.answer(question);
    return true;
  }

  answer(question) {
    const answer = this.conversation.add("assistant", question, structuredClone(EMPTY_ANSWER));
    this.run(answer);
    this.thread.goToEnd();
  }

  regenerate(message) {
    if (!this.isBusy()) {
      this.answer(this.conversation.parentOf(message));
      prompt.focus();
    }
  }

  retry(message) {
    if (!this.isBusy()) {
      Object.assign(message, structuredClone(EMPTY_ANSWER));
      this.thread.forget(message);
      this.run(message);
    }
  }

  run(answer) {
    this.alive.set(this.conversation.id, this.conversation);
    this.runs.start(this.conversation, answer);
    this.show();
    prompt.focus();
  }

  select(message, step) {
    this.conversation.select(message);
    this.save(this.conversation);
    this.show();
    this.thread.focusVersions(message, step);
  }

  stop() {
    this.runs.stop(this.conversation);
  }

  show() {
    ofThisTab.setItem(CURRENT, this.conversation.id);
    this.thread.show(this.conversation);
    this.showState();
  }

  showChange(conversation, message) {
    if (conversation === this.conversation) {
      this.thread.refresh(message);
    }
    if (!this.runs.isWriting(message)) {
      this.showState();
      this.onListChange();
    }
  }

  showState() {
    const stop = find("stop");
    const isBusy = this.isBusy();
    const hadFocus = document.activeElement === stop;
    find("send").hidden = isBusy;
    stop.hidden = !isBusy;
    if (hadFocus && !isBusy) {
      prompt.focus();
    }
    this.showContext();
  }

  showContext() {
    const answers = this.conversation.path().filter(({ usage }) => usage);
    const usage = answers.at(-1)?.usage;
    const used = usage ? usage.prompt_tokens + usage.completion_tokens : 0;
    const most = model.contextLength === null ? "" : ` of ${whole(model.contextLength)}`;
    setText(find("context"), usage ? `Context ${whole(used)}${most} tokens` : "");
  }

  startAnew() {
    this.conversation = new Conversation();
    this.show();
    this.onListChange();
    prompt.focus();
  }

  async open(id) {
    const found = await this.found(id);
    if (found) {
      this.conversation = found;
      this.show();
      this.onListChange();
      prompt.focus();
    }
  }

  async found(id) {
    const known = this.alive.get(id);
    if (known && (this.runs.isActive(known) || known.unsaved.size > 0)) {
      return known;
    }
    const record = await this.store.load(id);
    return record && new Conversation(record.header, record.messages);
  }

  async openLast() {
    await this.takeUnfinished();
    const id = ofThisTab.getItem(CURRENT);
    const found = id === null ? null : await this.found(id);
    if (found && this.conversation.messages.size === 0) {
      this.conversation = found;
      this.show();
    }
  }

  async save(conversation) {
    if (this.deleted.has(conversation)) {
      return;
    }
    const changed = conversation.unsaved;
    conversation.unsaved = new Set();
    try {
      this.saving.set(changed, conversation);
      await this.store.save(conversation, changed);
    } catch (error) {
      changed.forEach((one) => conversation.unsaved.add(one));
      this.alive.set(conversation.id, conversation);
      this.sayUnkept(error);
    }
    this.saving.delete(changed);
    this.onListChange();
  }

  noteUnfinished() {
    const unfinished = new Set([...this.saving.values(), ...this.runs.conversations()]);
    if (unfinished.size > 0) {
      ofThisTab.setItem(UNFINISHED, JSON.stringify([...unfinished].map(recordOf)));
    }
  }

  async takeUnfinished() {
    const text = ofThisTab.getItem(UNFINISHED);
    if (text !== null) {
      const records = JSON.parse(text);
      await this.store
        .add(records, { overwrites: true })
        .catch((error) => this.keepHere(records, error));
      ofThisTab.removeItem(UNFINISHED);
    }
  }

  keepHere(records, error) {
    for (const { header, messages } of records) {
      const conversation = new Conversation(header, messages);
      conversation.unsaved = new Set(messages);
      this.alive.set(header.id, conversation);
    }
    this.sayUnkept(error);
  }

  sayUnkept({ name }) {
    const text = name === "QuotaExceededError" ? FULL : UNKEPT;
    if (!isShown(text)) {
      showNotice(text);
    }
  }

  async record(id) {
    return this.alive.get(id) ? recordOf(await this.found(id)) : this.store.load(id);
  }

  async records() {
    const unsaved = [...this.alive.values()].filter((one) => one.unsaved.size > 0);
    const stored = await this.store.loadAll();
    const others = stored.filter(({ header }) => !unsaved.some(({ id }) => id === header.id));
    return [...unsaved.map(recordOf), ...others];
  }

  async rename(id, title) {
    for (const one of [this.conversation, this.alive.get(id)].filter((each) => each?.id === id)) {
      one.header.title = title;
    }
    await this.store.rename(id, title);
  }

  async delete(id) {
    const known = this.alive.get(id);
    if (known) {
      this.deleted.add(known);
    }
    this.runs.stop({ id });
    this.alive.delete(id);
    if (this.isCurrent(id)) {
      this.startAnew();
    }
    const stored = await this.store.delete(id);
    await Promise.all([...this.alive.values()].filter(isUnsaved).map((one) => this.save(one)));
    return known ? recordOf(known) : stored;
  }

  async takeFromOtherTab(id) {
    this.onListChange();
    const record = this.isCurrent(id) ? await this.store.load(id) : undefined;
    const isSettled = !this.isBusy() && this.conversation.unsaved.size === 0;
    if (record && this.isCurrent(id) && isSettled) {
      this.conversation.header.title = record.header.title;
      this.conversation.absorb(record.messages);
      this.show();
    }
  }
}

const isUnsaved = ({ unsaved }) => unsaved.size > 0;

const recordOf = ({ header, messages }) => ({ header, messages: [...messages.values()] });

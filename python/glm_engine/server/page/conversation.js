const ID_BYTES = 16;
const TITLE_LENGTH = 80;

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(ID_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function newHeader() {
  const now = Date.now();
  return { id: newId(), title: "", created: now, updated: now, leaf: null };
}

const titleOf = (text) => text.trim().split("\n", 1)[0].slice(0, TITLE_LENGTH);

export class Conversation {
  constructor(header = newHeader(), messages = []) {
    this.header = header;
    this.messages = new Map();
    this.children = new Map();
    this.absorb(messages);
    this.unsaved = new Set();
  }

  get id() {
    return this.header.id;
  }

  add(role, parent, fields) {
    const time = { created: Date.now() };
    const place = { id: newId(), conversation: this.id, parent: parent?.id ?? null };
    const message = { ...place, role, ...time, ...fields };
    if (this.messages.size === 0) {
      this.header.title = titleOf(message.content);
    }
    this.absorb([message]);
    this.header.leaf = message.id;
    this.touch(message);
    return message;
  }

  touch(message) {
    this.unsaved.add(message);
    this.header.updated = Date.now();
  }

  absorb(messages) {
    for (const one of messages) {
      const siblings = this.children.get(one.parent) ?? new Map();
      this.messages.set(one.id, one);
      this.children.set(one.parent, siblings.set(one.id, one));
    }
  }

  parentOf(message) {
    return this.messages.get(message.parent);
  }

  childrenOf(id) {
    const found = [...(this.children.get(id)?.values() ?? [])];
    return found.sort((one, other) => one.created - other.created);
  }

  versionsOf(message) {
    return this.childrenOf(message.parent);
  }

  pathTo(message) {
    const path = [];
    for (let one = message; one !== undefined; one = this.parentOf(one)) {
      path.push(one);
    }
    return path.reverse();
  }

  path() {
    return this.pathTo(this.messages.get(this.header.leaf));
  }

  select(message) {
    let leaf = message;
    for (let below = [leaf]; below.length > 0; below = this.childrenOf(leaf.id)) {
      leaf = below.at(-1);
    }
    this.header.leaf = leaf.id;
  }
}

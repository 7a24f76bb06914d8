const DATABASE = "glm";
const VERSION = 1;
const HEADERS = "conversations";
const MESSAGES = "messages";
const OF_CONVERSATION = "conversation";

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function opened() {
  const request = indexedDB.open(DATABASE, VERSION);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(HEADERS, { keyPath: "id" });
    const messages = request.result.createObjectStore(MESSAGES, { keyPath: "id" });
    messages.createIndex(OF_CONVERSATION, OF_CONVERSATION);
  };
  return finished(request);
}

const newestFirst = (headers) => headers.sort((one, other) => other.updated - one.updated);

function holds(message, sought) {
  return message.content.toLocaleLowerCase().includes(sought);
}

export class LastingStore {
  keepsConversations = true;

  constructor(database) {
    this.database = database;
    this.channel = new BroadcastChannel(DATABASE);
  }

  onChangeElsewhere(listener) {
    this.channel.onmessage = ({ data }) => listener(data);
  }

  transact(mode, work) {
    const transaction = this.database.transaction([HEADERS, MESSAGES], mode);
    const headers = transaction.objectStore(HEADERS);
    const messages = transaction.objectStore(MESSAGES);
    return new Promise((resolve, reject) => {
      let result;
      transaction.oncomplete = () => resolve(result);
      transaction.onabort = () => reject(transaction.error ?? new DOMException("", "AbortError"));
      work(headers, messages).then(
        (value) => {
          result = value;
        },
        (error) => {
          reject(error);
          transaction.abort();
        },
      );
    });
  }

  async change(id, work) {
    const result = await this.transact("readwrite", work);
    this.channel.postMessage(id);
    return result;
  }

  async list() {
    return newestFirst(await this.transact("readonly", (headers) => finished(headers.getAll())));
  }

  load(id) {
    return this.transact("readonly", async (headers, messages) => {
      const header = await finished(headers.get(id));
      const found = await finished(messages.index(OF_CONVERSATION).getAll(id));
      return header && { header, messages: found };
    });
  }

  async loadAll() {
    const headers = await this.list();
    const found = await Promise.all(headers.map(({ id }) => this.load(id)));
    return found.filter(Boolean);
  }

  save(conversation, changed) {
    return this.change(conversation.id, async (headers, messages) => {
      const { id, leaf, updated } = conversation.header;
      const stored = await finished(headers.get(id));
      headers.put({ ...(stored ?? conversation.header), leaf, updated });
      for (const one of stored ? changed : conversation.messages.values()) {
        messages.put(one);
      }
    });
  }

  rename(id, title) {
    return this.change(id, async (headers) => {
      const stored = await finished(headers.get(id));
      if (stored) {
        headers.put({ ...stored, title });
      }
    });
  }

  async delete(id) {
    const record = await this.load(id);
    await this.change(id, async (headers, messages) => {
      headers.delete(id);
      const keys = await finished(messages.index(OF_CONVERSATION).getAllKeys(id));
      keys.forEach((one) => messages.delete(one));
    });
    return record;
  }

  add(records, { overwrites = false } = {}) {
    return this.change(null, async (headers, messages) => {
      const stored = new Set(await finished(messages.getAllKeys()));
      for (const { header, messages: given } of records) {
        const keys = await finished(messages.index(OF_CONVERSATION).getAllKeys(header.id));
        const own = new Set(keys);
        if (given.some(({ id }) => stored.has(id) && !own.has(id))) {
          throw new Error(
            `The file was not imported: “${header.title}” has messages of another conversation.`,
          );
        }
        const kept = (await finished(headers.get(header.id))) ?? header;
        const { leaf, updated } = overwrites ? header : kept;
        headers.put({ ...kept, leaf, updated });
        given.filter(({ id }) => overwrites || !own.has(id)).forEach((one) => messages.put(one));
      }
    });
  }

  search(text) {
    const sought = text.toLocaleLowerCase();
    return this.transact("readonly", async (headers, messages) => {
      const titled = (await finished(headers.getAll())).filter(({ title }) =>
        title.toLocaleLowerCase().includes(sought),
      );
      const found = (await finished(messages.getAll())).filter((one) => holds(one, sought));
      return new Set([...titled.map(({ id }) => id), ...found.map((one) => one.conversation)]);
    });
  }
}

class TabStore {
  keepsConversations = false;
  records = new Map();

  onChangeElsewhere() {}

  async list() {
    return newestFirst([...this.records.values()].map(({ header }) => header));
  }

  async load(id) {
    return this.records.get(id);
  }

  async loadAll() {
    return [...this.records.values()];
  }

  async save({ id, header, messages }) {
    this.records.set(id, { header, messages: [...messages.values()] });
  }

  async rename(id, title) {
    this.records.get(id).header.title = title;
  }

  async delete(id) {
    const record = this.records.get(id);
    this.records.delete(id);
    return record;
  }

  async add(records) {
    const added = records.filter(({ header }) => !this.records.has(header.id));
    added.forEach((one) => this.records.set(one.header.id, one));
  }

  async search(text) {
    const sought = text.toLocaleLowerCase();
    const found = [...this.records.values()].filter(
      ({ header, messages }) =>
        header.title.toLocaleLowerCase().includes(sought) ||
        messages.some((one) => holds(one, sought)),
    );
    return new Set(found.map(({ header }) => header.id));
  }
}

export async function openStore() {
  try {
    return new LastingStore(await opened());
  } catch {
    return new TabStore();
  }
}

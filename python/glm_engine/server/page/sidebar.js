import { closeDrawer } from "./drawers.js";
import { button, counted, find, make, setText } from "./elements.js";
import { showNotice } from "./notice.js";
import { download, recordsOf, textOf } from "./transfer.js";

const MENU_HEIGHT_PX = 150;
const SEARCH_MS = 150;

const list = find("conversations");
const menu = find("options");
const search = find("search");

class Row {
  constructor(id, actions) {
    this.id = id;
    this.node = make("li", "");
    this.title = button("conversation", "", () => actions.open(id));
    this.more = button("more", "⋯", () => actions.choose(this));
    this.more.popoverTargetElement = menu;
    this.node.append(this.title, this.more);
  }

  show({ title }, isCurrent, isRunning) {
    setText(this.title, title);
    this.title.title = title;
    this.more.setAttribute("aria-label", `Options of “${title}”`);
    this.node.toggleAttribute("data-running", isRunning);
    if (isCurrent) {
      this.title.setAttribute("aria-current", "true");
    } else {
      this.title.removeAttribute("aria-current");
    }
  }

  edit(rename) {
    const field = make("input", "");
    let isOpen = true;
    const close = (title) => {
      if (isOpen) {
        isOpen = false;
        this.node.replaceChildren(this.title, this.more);
        this.title.focus();
        rename(title.trim() || this.title.textContent);
      }
    };
    field.value = this.title.textContent;
    field.setAttribute("aria-label", "Title");
    field.addEventListener("blur", () => close(field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) {
        event.preventDefault();
        close(field.value);
      } else if (event.key === "Escape" && !event.isComposing) {
        event.preventDefault();
        event.stopPropagation();
        close("");
      }
    });
    this.node.replaceChildren(field);
    field.focus();
    field.select();
  }
}

export class Sidebar {
  rows = new Map();
  chosen = null;

  constructor(store, chat) {
    this.store = store;
    this.chat = chat;
    this.actions = { open: (id) => this.open(id), choose: (row) => this.choose(row) };
    this.listen();
  }

  listen() {
    let waiting = null;
    search.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.refresh(), SEARCH_MS);
    });
    find("rename").addEventListener("click", () => this.rename());
    find("delete").addEventListener("click", () => this.delete());
    find("export").addEventListener("click", () => this.export());
    find("export-all").addEventListener("click", () => this.exportAll());
    find("import").addEventListener("click", () => find("file").click());
    find("file").addEventListener("change", () => this.import());
  }

  async refresh() {
    const text = search.value.trim();
    const stored = await this.store.list();
    const found = text === "" ? null : await this.store.search(text);
    if (text !== search.value.trim()) {
      return;
    }
    const ids = new Set(stored.map(({ id }) => id));
    const headers = [...this.chat.unsavedHeaders().filter(({ id }) => !ids.has(id)), ...stored];
    const shown = headers.filter(({ id }) => found?.has(id) ?? true);
    this.arrange(shown.map((header) => this.rowOf(header)));
    find("none").hidden = shown.length > 0;
    setText(find("none"), text === "" ? "No conversations yet" : "None found");
    find("export-all").disabled = headers.length === 0;
  }

  rowOf(header) {
    const { id } = header;
    if (!this.rows.has(id)) {
      this.rows.set(id, new Row(id, this.actions));
    }
    const row = this.rows.get(id);
    row.show(header, this.chat.isCurrent(id), this.chat.isRunning(id));
    return row;
  }

  arrange(rows) {
    const nodes = rows.map(({ node }) => node);
    const isSame = nodes.length === list.children.length;
    const isRenaming = list.querySelector("input") !== null;
    if (isRenaming || (isSame && nodes.every((node, at) => node === list.children[at]))) {
      return;
    }
    const focused = list.contains(document.activeElement) ? document.activeElement : null;
    list.replaceChildren(...nodes);
    focused?.focus();
  }

  async open(id) {
    closeDrawer("sidebar");
    await this.chat.open(id);
  }

  choose(row) {
    const { right, bottom } = row.more.getBoundingClientRect();
    this.chosen = row;
    menu.style.right = `${Math.max(0, document.documentElement.clientWidth - right)}px`;
    menu.style.top = `${Math.max(0, Math.min(bottom, window.innerHeight - MENU_HEIGHT_PX))}px`;
  }

  rename() {
    menu.hidePopover();
    const { id } = this.chosen;
    this.chosen.edit(async (title) => {
      await this.chat.rename(id, title);
      await this.refresh();
    });
  }

  async delete() {
    menu.hidePopover();
    const { id, title } = this.chosen;
    const wasCurrent = this.chat.isCurrent(id);
    const record = await this.chat.delete(id);
    this.rows.delete(id);
    await this.refresh();
    const undo = async () => {
      try {
        await this.store.add([record]);
      } catch {
        showNotice(`“${title.textContent}” could not be brought back.`);
        return;
      }
      await this.refresh();
      if (wasCurrent) {
        await this.open(id);
      } else {
        this.rows.get(id)?.title.focus();
      }
    };
    const actions = record ? { Undo: undo } : {};
    const [first] = showNotice(`Deleted “${title.textContent}”`, actions);
    first?.focus();
  }

  async export() {
    menu.hidePopover();
    const { header, messages } = await this.chat.record(this.chosen.id);
    const name = header.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
    download(`${name || "conversation"}.json`, textOf([{ header, messages }]));
  }

  async exportAll() {
    download("conversations.json", textOf(await this.chat.records()));
  }

  async import() {
    const field = find("file");
    const [file] = field.files;
    try {
      const records = recordsOf(await file.text());
      await this.store.add(records);
      showNotice(`Imported ${counted(records.length, "conversation")}`);
    } catch (error) {
      showNotice(
        error.name === "QuotaExceededError"
          ? "The file was not imported: the browser’s storage is full."
          : error.message,
      );
    }
    field.value = "";
    await this.refresh();
  }
}

import { copyAndSay } from "./clipboard.js";
import { button, make } from "./elements.js";
import { isSendKey } from "./keyboard.js";
import { Versions } from "./versions.js";

export class QuestionView {
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.node = make("div", "question");
    this.versions = new Versions(actions.select);
    this.asked = make("p", "asked", message.content);
    this.asked.prepend(make("span", "unseen", "You: "));
    const copy = button("action", "Copy", () => copyAndSay(message.content, copy));
    this.edit = button("action", "Edit", () => this.openEditor());
    this.under = make("div", "under");
    this.under.setAttribute("aria-live", "off");
    this.under.append(this.versions.node, copy, this.edit);
    this.node.append(this.asked, this.under);
  }

  show(versions) {
    this.versions.show(versions, this.message);
  }

  openEditor() {
    const form = make("form", "editor");
    const field = make("textarea", "");
    const buttons = make("div", "row");
    const send = make("button", "primary", "Send");
    field.value = this.message.content;
    field.setAttribute("aria-label", "Edit the message");
    buttons.append(
      button("quiet", "Cancel", () => this.closeEditor()),
      send,
    );
    form.append(field, buttons);
    form.addEventListener("submit", (event) => this.send(event, field.value.trim()));
    form.addEventListener("keydown", (event) => this.takeKey(event, form, field));
    this.node.replaceChildren(form);
    field.focus();
  }

  takeKey(event, form, field) {
    if (event.target === field && isSendKey(event)) {
      event.preventDefault();
      form.requestSubmit();
    } else if (event.key === "Escape" && !event.isComposing) {
      event.stopPropagation();
      this.closeEditor();
    }
  }

  send(event, text) {
    event.preventDefault();
    if (text !== "" && this.actions.edit(this.message, text)) {
      this.closeEditor();
      this.actions.focusPrompt();
    }
  }

  closeEditor() {
    this.node.replaceChildren(this.asked, this.under);
    this.edit.focus();
  }

  setBusy(isBusy) {
    this.edit.disabled = isBusy;
  }
}

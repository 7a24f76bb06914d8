import { button, make, setText } from "./elements.js";

export class Versions {
  constructor(select) {
    this.node = make("span", "versions");
    this.node.setAttribute("role", "group");
    this.node.setAttribute("aria-label", "Versions");
    this.place = make("span", "");
    this.earlier = button("action", "‹", () => this.move(select, -1));
    this.later = button("action", "›", () => this.move(select, 1));
    this.earlier.setAttribute("aria-label", "Previous version");
    this.later.setAttribute("aria-label", "Next version");
    this.node.append(this.earlier, this.place, this.later);
  }

  show(versions, message) {
    this.versions = versions;
    this.at = versions.indexOf(message);
    this.node.hidden = versions.length < 2;
    this.earlier.disabled = this.at === 0;
    this.later.disabled = this.at === versions.length - 1;
    setText(this.place, `${this.at + 1}/${versions.length}`);
  }

  move(select, step) {
    select(this.versions[this.at + step], step);
  }

  focus(step) {
    const [wanted, other] = step < 0 ? [this.earlier, this.later] : [this.later, this.earlier];
    (wanted.disabled ? other : wanted).focus();
  }
}

import { AnswerView } from "./answer.js";
import { find, make } from "./elements.js";
import { QuestionView } from "./question.js";

const NEAR_THE_END_PX = 48;

const log = find("log");
const scroll = find("scroll");

function readNothingNow() {
  log.setAttribute("aria-live", "off");
  setTimeout(() => log.setAttribute("aria-live", "polite"));
}

class Turn {
  node = make("article", "turn");

  constructor(question) {
    this.question = question;
    this.node.append(question.node);
  }

  show(answer) {
    this.answer = answer;
    if (this.node.children[1] !== answer?.node) {
      this.node.replaceChildren(this.question.node, ...(answer ? [answer.node] : []));
    }
  }
}

export class Thread {
  conversation = null;
  turns = new Map();
  answers = new Map();
  changed = new Set();
  isFollowing = true;
  lastTop = 0;

  constructor(actions, runs) {
    this.actions = actions;
    this.runs = runs;
    this.followTheEnd();
  }

  show(conversation) {
    if (conversation !== this.conversation) {
      readNothingNow();
      this.conversation = conversation;
      this.turns.clear();
      this.answers.clear();
      this.isFollowing = true;
    }
    const path = conversation.path();
    const questions = path.filter(({ role }) => role === "user");
    const turns = questions.map((one) => this.turnOf(one, path[path.indexOf(one) + 1]));
    log.replaceChildren(...turns.map(({ node }) => node));
    find("welcome").hidden = path.length > 0;
    this.showBusy();
  }

  turnOf(question, answer) {
    const { id } = question;
    if (!this.turns.has(id)) {
      this.turns.set(id, new Turn(new QuestionView(question, this.actions)));
    }
    const turn = this.turns.get(id);
    turn.question.show(this.conversation.versionsOf(question));
    turn.show(answer && this.answerOf(answer));
    return turn;
  }

  answerOf(message) {
    if (this.answers.get(message.id)?.message !== message) {
      this.answers.set(message.id, new AnswerView(message, this.actions));
    }
    const view = this.answers.get(message.id);
    view.show(this.conversation.versionsOf(message), this.runs.isWriting(message));
    return view;
  }

  forget({ id }) {
    this.answers.delete(id);
  }

  refresh(message) {
    if (!this.runs.isWriting(message)) {
      this.changed.delete(message);
      this.showAnswer(message);
      this.showBusy();
    } else if (!this.changed.has(message)) {
      this.changed.add(message);
      requestAnimationFrame(() => this.changed.delete(message) && this.showAnswer(message));
    }
  }

  showAnswer(message) {
    if (message.conversation === this.conversation.id && this.answers.has(message.id)) {
      this.answerOf(message);
    }
  }

  showBusy() {
    const isBusy = this.runs.isActive(this.conversation);
    for (const { question, answer } of this.turns.values()) {
      question.setBusy(isBusy);
      answer?.setBusy(isBusy);
    }
    log.setAttribute("aria-busy", String(isBusy));
  }

  focusVersions(message, step) {
    const view = this.turns.get(message.id)?.question ?? this.answers.get(message.id);
    view.versions.focus(step);
  }

  goToEnd() {
    this.isFollowing = true;
    scroll.scrollTop = scroll.scrollHeight;
    this.lastTop = scroll.scrollTop;
  }

  followTheEnd() {
    scroll.addEventListener("scroll", () => {
      const left = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
      const isMovedUp = scroll.scrollTop < this.lastTop && left > 1;
      this.isFollowing = !isMovedUp && (this.isFollowing || left < NEAR_THE_END_PX);
      this.lastTop = scroll.scrollTop;
    });
    const sizes = new ResizeObserver(() => {
      if (this.isFollowing && log.childElementCount > 0) {
        this.goToEnd();
      }
    });
    sizes.observe(log);
    sizes.observe(scroll);
  }
}

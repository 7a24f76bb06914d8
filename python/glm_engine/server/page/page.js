import { Turn } from "./answer.js";
import { find } from "./elements.js";
import { servedModel, watchGauges } from "./gauges.js";
import { credentials, openSettings, sampling, settings } from "./settings.js";
import { chunksOf } from "./stream.js";

const NEAR_THE_END_PX = 48;
const NARROW = "(max-width: 55.99rem)";

const prompt = find("prompt");
const log = find("log");
const scroll = find("scroll");
let turns = [];
let running = null;
let isFollowing = true;
let lastTop = 0;

function messagesFor(turn) {
  const system = settings.system.value.trim();
  const earlier = turns.slice(0, turns.indexOf(turn)).filter((one) => one.isUsable);
  return [
    ...(system ? [{ role: "system", content: system }] : []),
    ...earlier.flatMap(({ question, content }) => [
      { role: "user", content: question },
      { role: "assistant", content },
    ]),
    { role: "user", content: turn.question },
  ];
}

function requestFor(turn) {
  return {
    model: servedModel(),
    messages: messagesFor(turn),
    stream: true,
    stream_options: { include_usage: true },
    chat_template_kwargs: { enable_thinking: settings.thinking.checked },
    ...sampling(),
  };
}

function setRunning(controller) {
  const hadFocus = document.activeElement === find("stop");
  running = controller;
  find("send").hidden = controller !== null;
  find("stop").hidden = controller === null;
  log.setAttribute("aria-busy", String(controller !== null));
  if (hadFocus) {
    prompt.focus();
  }
}

async function run(turn) {
  const controller = new AbortController();
  setRunning(controller);
  turn.begin();
  try {
    for await (const chunk of chunksOf(requestFor(turn), credentials(), controller.signal)) {
      turn.take(chunk);
    }
    turn.finish();
  } catch (error) {
    if (controller.signal.aborted) {
      turn.close("stopped");
    } else {
      turn.fail(error, () => askAgain(turn));
    }
  }
  if (running === controller) {
    setRunning(null);
  }
}

function askAgain(turn) {
  if (running === null) {
    prompt.focus();
    run(turn);
  }
}

function ask(question) {
  if (running !== null || question.trim() === "") {
    return;
  }
  const turn = new Turn(question.trim());
  turns.push(turn);
  log.append(turn.node);
  prompt.focus();
  prompt.value = "";
  find("welcome").hidden = true;
  isFollowing = true;
  run(turn);
}

function startAnew() {
  running?.abort();
  setRunning(null);
  turns = [];
  log.replaceChildren();
  find("welcome").hidden = false;
  prompt.focus();
}

function followTheEnd() {
  scroll.addEventListener("scroll", () => {
    const left = scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight;
    const isMovedUp = scroll.scrollTop < lastTop && left > 1;
    isFollowing = !isMovedUp && (isFollowing || left < NEAR_THE_END_PX);
    lastTop = scroll.scrollTop;
  });
  const sizes = new ResizeObserver(() => {
    if (isFollowing && turns.length > 0) {
      scroll.scrollTop = scroll.scrollHeight;
      lastTop = scroll.scrollTop;
    }
  });
  sizes.observe(log);
  sizes.observe(scroll);
}

function listenToKeys() {
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      ask(prompt.value);
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.isComposing) {
      running?.abort();
    }
  });
}

function listenToButtons() {
  find("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(prompt.value);
  });
  find("stop").addEventListener("click", () => running?.abort());
  find("new").addEventListener("click", startAnew);
  for (const opener of find("openers").children) {
    opener.addEventListener("click", () => ask(opener.textContent));
  }
}

find("live").open = !matchMedia(NARROW).matches;
openSettings();
followTheEnd();
listenToKeys();
listenToButtons();
watchGauges();

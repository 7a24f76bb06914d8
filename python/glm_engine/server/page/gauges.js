import { find, make, number, setText, whole } from "./elements.js";
import { call } from "./server.js";
import { silenceMs } from "./stream.js";

const POLL_MS = 500;
const AWAY_POLL_MS = 1000;
const PATIENCE_MS = 4000;
const SECOND_MS = 1000;
const TRACE_SAMPLES = 120;
const TRACE_HEIGHT = 28;
const SVG = "http://www.w3.org/2000/svg";
const NOT_MEASURED = "–";

const percent = (share) => number(100 * share, share < 0.1 && share > 0 ? 1 : 0);
const measured = (value) => (value === null ? NOT_MEASURED : number(value));
const share = (part, whole) => (whole > 0 ? part / whole : 0);
const unitOf = (ms) => (ms >= SECOND_MS ? "s" : "ms");
const inUnit = (ms) => (ms >= SECOND_MS ? number(ms / SECOND_MS) : measured(ms));
const span = (ms) => `${inUnit(ms)}\u00a0${unitOf(ms)}`;
const slowest = ({ p90, p99 }) => (p90 === null ? "" : `p90\u00a0${span(p90)} · p99\u00a0${span(p99)}`);

const GAUGES = [
  {
    title: "Throughput",
    unit: () => "tokens/s",
    value: (now) => measured(now.tokens_per_second),
    traced: (now) => now.tokens_per_second,
    note: (now) => `Prompts ${measured(now.prompt_tokens_per_second)}\u00a0tokens/s`,
  },
  {
    title: "Batch occupancy",
    unit: () => "%",
    value: (now) => percent(now.batch_occupancy),
    parts: (now) => [now.batch_occupancy],
    note: (now) => `${whole(now.batch_occupancy * now.max_batch)} of ${whole(now.max_batch)} running`,
  },
  {
    title: "KV cache",
    unit: () => "%",
    value: (now) => percent(now.kv_utilisation),
    parts: (now) => [now.kv_utilisation, share(now.cached_pages, now.total_pages)],
    note: (now) => `${whole(now.free_pages)} pages free · ${whole(now.cached_pages)} cached`,
  },
  {
    title: "Queue",
    unit: () => "waiting",
    value: (now) => whole(now.waiting_requests),
    parts: (now) => [share(now.waiting_requests, now.max_queue)],
    note: (now) => `Room for ${whole(now.max_queue)}`,
  },
  {
    title: "Time to first token",
    unit: (now) => unitOf(now.ttft_ms.p50),
    value: (now) => inUnit(now.ttft_ms.p50),
    traced: (now) => now.ttft_ms.p50,
    note: (now) => slowest(now.ttft_ms),
  },
  {
    title: "Inter-token latency",
    unit: (now) => unitOf(now.inter_token_ms.p50),
    value: (now) => inUnit(now.inter_token_ms.p50),
    traced: (now) => now.inter_token_ms.p50,
    note: (now) => slowest(now.inter_token_ms),
  },
  {
    title: "Draft tokens",
    isOn: (now) => now.speculate !== "off",
    unit: () => "tokens/pass",
    value: (now) => measured(now.acceptance_length),
    traced: (now) => now.acceptance_length,
    note: (now) => (now.acceptance_rate === null ? "" : `${percent(now.acceptance_rate)}% accepted`),
  },
];

class Trace {
  constructor() {
    this.node = document.createElementNS(SVG, "svg");
    this.node.setAttribute("class", "trace");
    this.node.setAttribute("viewBox", `0 0 ${TRACE_SAMPLES - 1} ${TRACE_HEIGHT}`);
    this.node.setAttribute("preserveAspectRatio", "none");
    this.node.setAttribute("aria-hidden", "true");
    this.area = this.node.appendChild(document.createElementNS(SVG, "polygon"));
    this.line = this.node.appendChild(document.createElementNS(SVG, "polyline"));
    this.samples = [];
  }

  show(value) {
    this.samples = [...this.samples, value].slice(-TRACE_SAMPLES);
    const top = Math.max(...this.samples, Number.MIN_VALUE);
    const begin = TRACE_SAMPLES - this.samples.length;
    const points = this.samples
      .map((one, at) => [begin + at, TRACE_HEIGHT * (1 - (one ?? 0) / top)])
      .map(([x, y]) => `${x},${y.toFixed(2)}`);
    this.line.setAttribute("points", points.join(" "));
    const [first, last] = [`${begin},${TRACE_HEIGHT}`, `${TRACE_SAMPLES - 1},${TRACE_HEIGHT}`];
    this.area.setAttribute("points", [first, ...points, last].join(" "));
  }
}

class Bar {
  constructor(count) {
    this.node = make("div", "bar");
    this.node.setAttribute("aria-hidden", "true");
    this.parts = Array.from({ length: count }, () => this.node.appendChild(make("i", "")));
  }

  show(shares) {
    shares.forEach((one, at) => {
      this.parts[at].style.width = `${(100 * Math.min(1, one)).toFixed(2)}%`;
    });
  }
}

class Gauge {
  constructor(kind) {
    this.kind = kind;
    this.node = make("li", "gauge");
    this.value = make("b", "", NOT_MEASURED);
    this.unit = make("span", "");
    this.note = make("p", "note");
    this.drawing = null;
    const figure = make("p", "figure");
    figure.append(this.value, this.unit);
    this.node.append(make("h2", "", kind.title), figure, this.note);
  }

  show(now) {
    this.value.textContent = this.kind.value(now);
    this.unit.textContent = this.kind.unit(now);
    this.note.textContent = this.kind.note(now);
    const drawn = (this.kind.traced ?? this.kind.parts)(now);
    if (this.drawing === null) {
      this.drawing = this.kind.traced ? new Trace() : new Bar(drawn.length);
      this.note.before(this.drawing.node);
    }
    this.drawing.show(drawn);
  }
}

const gauges = GAUGES.map((kind) => new Gauge(kind));
let timer = null;
let isPolling = false;
let onReady = () => undefined;

function setState(state, text) {
  const isNews = find("state").dataset.state !== state;
  find("state").dataset.state = state;
  setText(find("state"), text);
  if (isNews && state === "ready") {
    onReady();
  }
}

function setStale(isStale) {
  find("live").toggleAttribute("data-stale", isStale);
}

function isOn(gauge, now) {
  return gauge.kind.isOn?.(now) ?? true;
}

function show(now) {
  const shown = gauges.filter((gauge) => isOn(gauge, now));
  if (find("gauges").childElementCount !== shown.length) {
    find("gauges").replaceChildren(...shown.map(({ node }) => node));
  }
  shown.forEach((gauge) => gauge.show(now));
  setText(find("model"), now.model);
  setText(find("device"), now.device);
  setText(find("digest"), `${measured(now.tokens_per_second)} tokens/s`);
  document.title = now.model;
  setState(...(now.is_draining ? ["draining", "Shutting down"] : ["ready", "Ready"]));
}

async function read() {
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const response = await call("/gauges", { asksForKey: false, cache: "no-store", signal });
  return response.json();
}

async function poll() {
  timer = null;
  isPolling = true;
  let wait = POLL_MS;
  try {
    show(await read());
    setStale(false);
  } catch {
    setStale(true);
    if (silenceMs() > PATIENCE_MS) {
      setState("away", "Server unreachable");
    }
    wait = AWAY_POLL_MS;
  }
  isPolling = false;
  if (!document.hidden) {
    timer = setTimeout(poll, wait);
  }
}

function pauseOrGoOn() {
  if (document.hidden) {
    clearTimeout(timer);
    timer = null;
  } else if (timer === null && !isPolling) {
    poll();
  }
}

export function watchGauges(listener) {
  onReady = listener;
  find("gauges").append(...gauges.filter(({ kind }) => !kind.isOn).map(({ node }) => node));
  document.addEventListener("visibilitychange", pauseOrGoOn);
  poll();
}

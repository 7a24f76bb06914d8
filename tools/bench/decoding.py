"""Decode of checkpoints/capitals beside transformers: the same prompts, threads and minutes."""

from statistics import median

from tools.bench.machine import num_cores
from tools.bench.processes import Worker
from tools.bench.report import Bound, Figure, Section

BATCHES = (1, 8, 32)
GATED_BATCH = 32
ROUNDS = 5
NUM_TOKENS, WARM_UP, NUM_STEPS = 64, 8, 64
SETTINGS = [
    {"attention": attention, "experts": experts}
    for attention in ("sdpa", "eager")
    for experts in ("grouped_mm", "eager")
]
MEASURES = ("decode_tokens_per_second", "prefill_tokens_per_second")
METHOD = (
    f"Prompts of {NUM_TOKENS} tokens, {NUM_STEPS} greedy decode steps after {WARM_UP} of warm-up, "
    "no sequence ends in between. The engine runs its continuous batching (submit, poll) in W8A8; "
    "transformers runs the dequantised weights in float32, without hooks, under "
    "`torch.inference_mode`, with its KV cache and logits of the last position only, in the "
    "fastest of its settings (tried here: sdpa and eager attention, grouped_mm and eager experts). "
    "Each side is a process of its own with the same number of threads; they take turns, "
    f"{ROUNDS} rounds, and the medians count. Prefill: from submission until the last sequence "
    "has its first token."
)


def question(batch: int) -> dict:
    return {
        "batch": batch,
        "num_tokens": NUM_TOKENS,
        "warm_up": WARM_UP,
        "num_steps": NUM_STEPS,
    }


def fastest_setting(transformers: Worker, batch: int) -> dict:
    """The attention and experts implementations with which decode is fastest, tried twice each."""

    def rate(setting: dict) -> float:
        answers = [transformers.ask(**setting, **question(batch)) for _ in range(2)]
        return max(answer["decode_tokens_per_second"] for answer in answers)

    return max(SETTINGS, key=rate)


def take_turns(engine: Worker, transformers: Worker, batch: int) -> tuple[dict, dict]:
    """Every measured rate of both sides, and the setting that transformers ran in."""
    setting = fastest_setting(transformers, batch)
    engine.ask(**question(batch))
    rates = {(side, name): [] for side in ("engine", "transformers") for name in MEASURES}
    for _ in range(ROUNDS):
        answers = {
            "engine": engine.ask(**question(batch)),
            "transformers": transformers.ask(**setting, **question(batch)),
        }
        for side, name in rates:
            rates[side, name].append(answers[side][name])
    return rates, setting


def figures_of(batch: int, rates: dict, setting: dict) -> list[Figure]:
    middle = {key: median(values) for key, values in rates.items()}
    theirs = f"({setting['attention']}, {setting['experts']})"
    figures = []
    for name in MEASURES:
        kind = name.partition("_")[0]
        mine, other = middle["engine", name], middle["transformers", name]
        gated = kind == "decode" and batch == GATED_BATCH
        bound, limit = (Bound.AT_LEAST, other) if gated else (Bound.NONE, None)
        note = f"{mine / other:.2f} of transformers' {other:,.0f} {theirs}"
        figures.append(Figure(f"{kind}, batch {batch}", mine, "tokens/s", bound, limit, note))
    return figures


def run() -> Section:
    """Rates of both sides for each batch; decode at batch 32 has transformers as its limit."""
    threads = str(num_cores())
    variables = {"BENCH_THREADS": threads, "OMP_NUM_THREADS": threads}
    figures, series = [], {}
    with (
        Worker("tools.bench.engine_worker", **variables) as engine,
        Worker("tools.bench.transformers_worker", **variables) as transformers,
    ):
        for batch in BATCHES:
            rates, setting = take_turns(engine, transformers, batch)
            figures += figures_of(batch, rates, setting)
            series[str(batch)] = {f"{side} {name}": rates[side, name] for side, name in rates}
    return Section("decoding", "Decode of capitals", METHOD, tuple(figures), series)

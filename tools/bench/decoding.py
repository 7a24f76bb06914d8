"""Decode of checkpoints/capitals beside transformers: the same prompts, threads and minutes."""

import atexit
import json
import os
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import median
from typing import TYPE_CHECKING

from glm_engine.bench.steps import drain
from glm_engine.core.engine import Engine, EngineOptions, Request
from glm_engine.core.layout import CAPITALS
from glm_engine.core.requests import Event
from tools.bench.processes import Worker
from tools.bench.report import Bound, Figure, Section

if TYPE_CHECKING:
    from torch import nn

BATCHES = (1, 8, 32)
GATED_BATCH = 32
ROUNDS = 5
MAX_BATCH, MAX_SEQ = 32, 512
THREADS = "BENCH_THREADS"
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


Rates = dict[str, float]
Setting = dict[str, str]


def quiz(begin: int, entries: Sequence[Mapping[str, str]]) -> str:
    """Questions with answers about every country, from one of them on."""
    return "".join(
        f"Q: What is the capital of {entry['country']}?\nA: {entry['capital']}.\n"
        for entry in (*entries[begin:], *entries[:begin])
    )


@cache
def prompts(batch: int, num_tokens: int) -> list[list[int]]:
    """Token ids of `batch` quizzes that begin at different countries, `num_tokens` each."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(CAPITALS / "tokenizer.json"))
    entries = json.loads((CAPITALS / "countries.json").read_text(encoding="utf-8"))
    texts = [quiz(number * len(entries) // batch, entries) for number in range(batch)]
    rows = [tokenizer.encode(text).ids[:num_tokens] for text in texts]
    if any(len(row) != num_tokens for row in rows):
        raise ValueError(f"a quiz is shorter than {num_tokens} tokens")
    return rows


@cache
def open_engine() -> Engine:
    """The engine of this process."""
    engine = Engine(
        EngineOptions(
            model_dir=CAPITALS,
            device="cpu",
            max_batch=MAX_BATCH,
            max_seq=MAX_SEQ,
            num_threads=int(os.environ[THREADS]),
            prefix_cache=False,
        )
    )
    atexit.register(engine.close)
    return engine


def steady_rate(times: Mapping[int, Sequence[float]], warm_up: int) -> float:
    """Tokens per second while every request was past its warm-up and none had ended."""
    begin = max(row[warm_up] for row in times.values())
    end = min(row[-1] for row in times.values())
    return sum(begin < time <= end for row in times.values() for time in row) / (end - begin)


def decode_here(batch: int) -> Rates:
    """Submit `batch` prompts to the engine at once and let them decode together."""
    engine, times = open_engine(), defaultdict[int, list[float]](list)
    max_tokens = 1 + WARM_UP + NUM_STEPS

    def take(event: Event) -> None:
        times[event.request_id].append(event.time_ns / 1e9)

    rows = prompts(batch, NUM_TOKENS)
    begin = time.monotonic()
    for row in rows:
        engine.submit(Request(row, max_tokens=max_tokens, ignore_eos=True))
    drain(engine, batch, take)
    first = max(row[0] for row in times.values())
    return {
        "prefill_tokens_per_second": batch * NUM_TOKENS / (first - begin),
        "decode_tokens_per_second": steady_rate(times, WARM_UP),
    }


@cache
def open_transformers(attention: str, experts: str) -> "nn.Module":
    """The checkpoint in float32, without hooks, in transformers."""
    import torch
    from transformers.utils.logging import disable_progress_bar, set_verbosity_error

    from tools.checkpoint.verify import plain_model

    torch.set_num_threads(int(os.environ[THREADS]))
    warnings.filterwarnings("ignore")
    disable_progress_bar()
    set_verbosity_error()
    return plain_model(CAPITALS, attn_implementation=attention, experts_implementation=experts)


def decode_in_transformers(batch: int, attention: str, experts: str) -> Rates:
    """One forward over all prompts, then greedy steps over transformers' own KV cache."""
    import torch

    model, ids = open_transformers(attention, experts), prompts(batch, NUM_TOKENS)
    with torch.inference_mode():
        begin = time.monotonic()
        result = model(torch.tensor(ids), use_cache=True, logits_to_keep=1)
        token = result.logits[:, -1].argmax(-1, keepdim=True)
        first = steady = time.monotonic()
        for step in range(WARM_UP + NUM_STEPS):
            if step == WARM_UP:
                steady = time.monotonic()
            past = result.past_key_values
            result = model(token, past_key_values=past, use_cache=True, logits_to_keep=1)
            token = result.logits[:, -1].argmax(-1, keepdim=True)
        end = time.monotonic()
    return {
        "prefill_tokens_per_second": batch * NUM_TOKENS / (first - begin),
        "decode_tokens_per_second": batch * NUM_STEPS / (end - steady),
    }


def fastest_setting(transformers: Worker, batch: int) -> Setting:
    """The attention and experts implementations with which decode is fastest, tried twice each."""

    def rate(setting: Setting) -> float:
        answers = [transformers.ask(decode_in_transformers, batch, **setting) for _ in range(2)]
        return max(answer["decode_tokens_per_second"] for answer in answers)

    return max(SETTINGS, key=rate)


def take_turns(
    engine: Worker, transformers: Worker, batch: int
) -> tuple[dict[tuple[str, str], list[float]], Setting]:
    """Every measured rate of both sides, and the setting that transformers ran in."""
    setting = fastest_setting(transformers, batch)
    engine.ask(decode_here, batch)
    rates: dict[tuple[str, str], list[float]] = {
        (side, name): [] for side in ("engine", "transformers") for name in MEASURES
    }
    for _ in range(ROUNDS):
        answers = {
            "engine": engine.ask(decode_here, batch),
            "transformers": transformers.ask(decode_in_transformers, batch, **setting),
        }
        for side, name in rates:
            rates[side, name].append(answers[side][name])
    return rates, setting


def figures_of(
    batch: int, rates: Mapping[tuple[str, str], Sequence[float]], setting: Setting
) -> list[Figure]:
    middle = {key: median(values) for key, values in rates.items()}
    theirs = f"({setting['attention']}, {setting['experts']})"
    figures = []
    for name in MEASURES:
        kind = name.partition("_")[0]
        mine, other = middle["engine", name], middle["transformers", name]
        gated = kind == "decode" and batch == GATED_BATCH
        bound, limit = Bound.AT_LEAST, other if gated else None
        note = f"{mine / other:.2f} of transformers' {other:,.0f} {theirs}"
        figures.append(Figure(f"{kind}, batch {batch}", mine, "tokens/s", bound, limit, note))
    return figures


def run() -> Section:
    """Rates of both sides for each batch; decode at batch 32 has transformers as its limit."""
    threads = str(len(os.sched_getaffinity(0)))
    variables = {THREADS: threads, "OMP_NUM_THREADS": threads}
    figures: list[Figure] = []
    series: dict[str, dict[str, list[float]]] = {}
    with (
        Worker(**variables) as engine,
        Worker(**variables) as transformers,
    ):
        for batch in BATCHES:
            rates, setting = take_turns(engine, transformers, batch)
            figures += figures_of(batch, rates, setting)
            series[str(batch)] = {f"{side} {name}": rates[side, name] for side, name in rates}
    return Section("decoding", "Decode of capitals", METHOD, tuple(figures), series)

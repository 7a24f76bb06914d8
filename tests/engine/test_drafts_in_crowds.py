"""Drafts change no token and no log-probability: at once, spread and preempted, alone, cached.

On one GPU with room for it the model is GLM-4.5-Air with random weights, else capitals. The drafts
are the answers without drafts, each token right with a probability of 0.7.
"""

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache

import pytest

from glm_engine.bench.costs import config_path
from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.verify.device import Backend
from tests.devices import device_kind
from tests.engine.running import (
    DEADLINE_SECONDS,
    Finished,
    open_engine,
    preempt_unless_ended,
    run_requests,
    take,
)
from tests.engine.test_draft_rows import damaged
from tests.reference.capitals import CAPITALS
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout

AIR_BYTES = 125 << 30
ACCURACY = 0.7
LONGEST_WAIT = 0.02
PREEMPTED_SHARE = 0.1
COURSES = [
    (ONE_RANK, 1, 0),
    (ONE_RANK, 3, 32),
    (Split(2, ExpertLayout.TENSOR_PARALLEL), 7, 0),
    (Split(4, ExpertLayout.EXPERT_PARALLEL), 3, 16),
    (Split(8, ExpertLayout.TENSOR_PARALLEL), 1, 48),
]

pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Crowd:
    """A model, how many requests come, how long their prompts are, and what the engine has."""

    directory: object
    vocab_size: int
    num_requests: int
    longest_prompt: int
    options: dict


CROWDS = {
    "capitals": Crowd(CAPITALS, 2048, 24, 300, {"num_pages": 40, "max_seq": 384, "max_batch": 12}),
    "air": Crowd(
        config_path("glm-4.5-air-fp8"),
        151552,
        160,
        1800,
        {"num_pages": 700, "max_seq": 2048, "max_batch": 48, "synthetic": True},
    ),
}


@cache
def has_room_for_air() -> bool:
    if device_kind() != "cuda":
        return False
    with Backend("cuda").device() as device:
        return device.info.memory_total_bytes >= AIR_BYTES


def crowd_of(split: Split) -> Crowd:
    return CROWDS["air" if split == ONE_RANK and has_room_for_air() else "capitals"]


def sampling_of(draw: random.Random) -> Sampling:
    if draw.random() < 0.5:
        return Sampling(num_logprobs=2)
    return Sampling(
        temperature=0.9,
        top_p=0.95,
        seed=draw.randrange(2**40),
        frequency_penalty=draw.choice([0.0, 0.4]),
        num_logprobs=2,
    )


def requests_of(kind: Crowd, seed: int) -> list[Request]:
    """Prompts of 3 tokens to the longest; every third begins as others do."""
    draw = random.Random(seed)
    longest = kind.longest_prompt
    common = [draw.randrange(kind.vocab_size) for _ in range(longest)]
    lengths = [3, longest, *(draw.randrange(3, longest + 1) for _ in range(kind.num_requests - 2))]
    requests = []
    for number, length in enumerate(lengths):
        num_common = length // 2 if number % 3 == 0 else 0
        own = [draw.randrange(kind.vocab_size) for _ in range(length - num_common)]
        prompt, num_outputs = common[:num_common] + own, draw.randrange(1, 40)
        sampling = sampling_of(draw)
        requests.append(Request(prompt, max_tokens=num_outputs, sampling=sampling, ignore_eos=True))
    return requests


@contextmanager
def opened(kind: Crowd, split: Split, **options) -> Iterator[Engine]:
    with open_engine(kind.directory, split, **kind.options, **options) as engine:
        yield engine


def run_spread(engine: Engine, requests: Sequence[Request], seed: int) -> list[Finished]:
    """Submit each a random time after the one before, and preempt some that gave a token."""
    draw, waiting, finished, left = random.Random(seed), list(requests), {}, len(requests)
    deadline, due = time.monotonic() + DEADLINE_SECONDS, 0.0
    while left:
        assert time.monotonic() < deadline, f"{left} requests unfinished"
        if waiting and time.monotonic() >= due:
            finished[engine.submit(waiting.pop(0))] = Finished()
            due = time.monotonic() + draw.random() * LONGEST_WAIT
        engine.wait(LONGEST_WAIT / 4)
        for event in engine.poll():
            if event.kind == "token" and draw.random() < PREEMPTED_SHARE:
                preempt_unless_ended(engine, event.request_id)
            left -= take(event, finished)
    return list(finished.values())


def facts_of(results: Sequence[Finished]) -> list:
    return [
        (
            one.tokens,
            one.finish_reason,
            [(event.logprob, tuple(event.top_logprobs)) for event in one.events],
        )
        for one in results
    ]


def run_alone(engine: Engine, requests: Sequence[Request]) -> list:
    return [facts_of(run_requests(engine, [one]))[0] for one in requests]


def differing(results: list, expected: list) -> list[int]:
    return [at for at, pair in enumerate(zip(results, expected, strict=True)) if pair[0] != pair[1]]


@pytest.mark.parametrize(("split", "most", "prefill_chunk"), COURSES, ids=str)
def test_drafts_in_a_crowd_change_nothing(split, most, prefill_chunk, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    kind = crowd_of(split)
    requests = requests_of(kind, seed)
    with opened(kind, split) as engine:
        expected = facts_of(run_requests(engine, requests))
    draw = random.Random(seed)
    drafted = [
        replace(one, draft_tokens=damaged(tokens, ACCURACY, draw, kind.vocab_size))
        for one, (tokens, *_) in zip(requests, expected, strict=True)
    ]
    with opened(kind, split, max_draft_tokens=most, prefill_chunk=prefill_chunk) as engine:
        assert differing(facts_of(run_requests(engine, drafted)), expected) == []
        info = engine.info()
        assert 0 < info["num_accepted_tokens"] < info["num_draft_tokens"]
        assert differing(facts_of(run_spread(engine, drafted, seed)), expected) == []
        assert engine.info()["num_preemptions"] > info["num_preemptions"]
        assert differing(run_alone(engine, drafted), expected) == []
        assert engine.info()["num_cached_tokens"] > info["num_cached_tokens"]
    with opened(kind, split, prefix_cache=False) as engine:
        assert differing(run_alone(engine, requests), expected) == []

"""Runs requests with masks: whoever gets a token is given the mask of the next."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from glm_engine.core.engine import Engine, Event, Request, Sampling
from tests.engine.running import DEADLINE_SECONDS, Finished, take
from tests.reference.capitals import prompts
from tests.shapes import generator

VOCAB = 2048
MAX_TOKENS = 8
DRAWN = Sampling(temperature=0.8, seed=5, repetition_penalty=1.1, num_logprobs=3)

Masks = Callable[[list[int]], np.ndarray | None]


def words_of(allowed: np.ndarray) -> np.ndarray:
    """bool [vocab] → uint32 [ceil(vocab / 32)], bit t % 32 of word t / 32 for token t."""
    padded = np.zeros(-(-len(allowed) // 32) * 32, dtype=bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<u4")


def mask_of(tokens: Sequence[int], vocab_size: int) -> np.ndarray:
    """The mask that allows these tokens and no other."""
    allowed = np.zeros(vocab_size, dtype=bool)
    allowed[list(tokens)] = True
    return words_of(allowed)


def asked(index: int, **changes) -> Request:
    return Request(prompt=prompts()[index], max_tokens=MAX_TOKENS, ignore_eos=True, **changes)


def random_masks(key: int, vocab_size: int = VOCAB, share: float = 0.02):
    """A function of the output so far alone, so that a replay gets the same masks."""

    def mask(tokens: list[int]) -> np.ndarray:
        random = generator("masks", key, len(tokens))
        allowed = random.random(vocab_size) < share
        allowed[int(random.integers(vocab_size))] = True
        return words_of(allowed)

    return mask


def is_allowed(mask: np.ndarray, token: int) -> bool:
    return bool(mask[token // 32] >> (token % 32) & 1)


def check_allowed(tokens: list[int], masks) -> None:
    for index, token in enumerate(tokens):
        assert is_allowed(masks(tokens[:index]), token), f"token {index}: {token}"


def everything(vocab_size: int) -> Masks:
    return lambda _tokens: words_of(np.ones(vocab_size, dtype=bool))


def run_masked(
    engine: Engine,
    requests: Sequence[Request],
    masks: Sequence[Masks | None],
    keeps_back: Callable[[], bool] = lambda: False,
) -> list[Finished]:
    """Submits all at once; `masks[i]` (None: a request without) maps outputs to the next mask.

    A mask that is kept back is tried again when the next events come, or after 0.1 s.
    """
    given = {}
    for request, one in zip(requests, masks, strict=True):
        masked = request if one is None else replace(request, mask=one([]))
        given[engine.submit(masked)] = one
    finished = {request_id: Finished() for request_id in given}
    left, deadline = set(given), time.monotonic() + DEADLINE_SECONDS
    guided = {request_id for request_id in given if given[request_id] is not None}
    due: set[int] = set()
    while left:
        assert time.monotonic() < deadline, f"{len(left)} requests unfinished"
        engine.wait(0.1)
        due |= {event.request_id for event in engine.poll() if file(event, finished, left)}
        ready = [request_id for request_id in due & left & guided if not keeps_back()]
        engine.set_masks([next_of(given, finished, request_id) for request_id in ready])
        due -= set(ready)
    return list(finished.values())


def next_of(given: dict, finished: dict[int, Finished], request_id: int) -> tuple:
    """What `Engine.set_masks` takes: the mask of the token after those that have come."""
    tokens = finished[request_id].tokens
    return request_id, len(tokens), given[request_id](tokens)


def file(event: Event, finished: dict[int, Finished], left: set[int]) -> bool:
    """Takes in one event; says whether it was a token."""
    if take(event, finished):
        left.remove(event.request_id)
    return event.kind == "token"


def await_events(engine: Engine, is_enough: Callable[[list[Event]], bool]) -> list[Event]:
    """Polls until what has come is enough."""
    events, deadline = [], time.monotonic() + DEADLINE_SECONDS
    while not events or not is_enough(events):
        assert time.monotonic() < deadline, f"these events alone came: {events}"
        engine.wait(0.1)
        events += engine.poll()
    return events


def await_tokens(engine: Engine, count: int) -> list[Event]:
    """That many tokens; no request may end before."""
    events = await_events(engine, lambda events: len(events) >= count)
    assert [event.kind for event in events] == ["token"] * count, events
    return events


def await_end(engine: Engine) -> Event:
    """The first event that ends a request, whatever tokens come before it."""
    events = await_events(engine, lambda events: any(event.ends_request for event in events))
    return next(event for event in events if event.ends_request)

"""Opens engines and runs requests on them to their ends."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from glm_engine.core import abi
from glm_engine.core.engine import Engine, EngineOptions, Event, Request
from glm_engine.core.errors import EngineError
from tests.devices import chosen_options
from tests.reference.golden import ONE_RANK, Split
from tests.reference.prefix_index import PrefixIndex

DEADLINE_SECONDS = 120


@dataclass
class Finished:
    """The tokens of one request in order, its events and why it ended."""

    tokens: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    prompt_events: list[Event] = field(default_factory=list)
    finish_reason: str = ""


@contextmanager
def open_engine(directory: Path, split: Split = ONE_RANK, **options) -> Iterator[Engine]:
    """An engine on the device under test, with one thread a rank."""
    defaults = {"max_seq": 256, "max_batch": 4, "num_threads": split.world_size}
    chosen = EngineOptions(
        model_dir=directory,
        expert_layout=split.expert_layout.value,
        **chosen_options(split.world_size, **{**defaults, **options}),
    )
    with Engine(chosen) as engine:
        yield engine


def take(event: Event, finished: dict[int, Finished]) -> bool:
    """Files one event; says whether it ended its request."""
    result = finished[event.request_id]
    if event.kind == "token":
        assert event.index == len(result.tokens), f"token {event.index} out of order"
        result.tokens.append(event.token_id)
        result.events.append(event)
        return False
    if event.kind == "prompt_token":
        assert event.index == len(result.prompt_events) + 1, f"prompt token {event.index}"
        assert not result.tokens, f"prompt token {event.index} after the first of the output"
        result.prompt_events.append(event)
        return False
    assert event.kind == "finished", f"request {event.request_id}: {event.kind}: {event.message}"
    result.finish_reason = event.finish_reason
    return True


def run_requests(engine: Engine, requests: Sequence[Request]) -> list[Finished]:
    """Submits all at once and waits for all; results in the order of the requests."""
    finished = {engine.submit(request): Finished() for request in requests}
    left, deadline = len(finished), time.monotonic() + DEADLINE_SECONDS
    while left:
        assert time.monotonic() < deadline, f"{left} requests unfinished"
        engine.wait(0.1)
        left -= sum(take(event, finished) for event in engine.poll())
    return list(finished.values())


def preempt_unless_ended(engine: Engine, request_id: int) -> None:
    try:
        engine.preempt(request_id)
    except EngineError as error:
        if "has ended" not in str(error):
            raise


def follow_kv_events(index: PrefixIndex, records, tokens) -> None:
    """Lets an index of the prefix cache follow what `take_kv_events` gave."""
    for event, ids in zip(records.tolist(), tokens.tolist(), strict=True):
        page_hash, parent, kind, has_parent = event
        if kind == abi.KV_STORED:
            index.store([page_hash], parent if has_parent else None, ids, len(ids))
        elif kind == abi.KV_REMOVED:
            index.remove([page_hash])
        else:
            assert kind == abi.KV_CLEARED
            index.clear()

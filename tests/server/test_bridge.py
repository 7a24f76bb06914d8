"""The bridge and the care of streams over a recorded engine: one choice's fault is its own."""

import asyncio
from types import SimpleNamespace

import numpy
import pytest

from glm_engine.core import abi
from glm_engine.core.abi import record_dtype
from glm_engine.core.errors import EngineError, Status
from glm_engine.server.bridge import EngineBridge, Inbox
from glm_engine.server.choices import Choice
from glm_engine.server.guides import NewTokens
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.streaming import look_after_streams

TOKEN = 5


class RecordedEngine:
    """Gives events that were set before, and remembers what was cancelled."""

    def __init__(self, num_events):
        self.records = numpy.zeros(num_events, dtype=record_dtype("engine_event"))
        self.records["kind"] = abi.EVENT_TOKEN
        self.records["token_id"] = TOKEN
        self.records["num_logprobs"] = -1
        self.records["request_id"] = numpy.arange(1, num_events + 1)
        self.cancelled = []

    def poll_records(self):
        return self.records

    def cancel_quietly(self, request_id):
        self.cancelled.append(request_id)
        raise EngineError("engine_cancel", Status.GLM_DEVICE_ERROR, "lost")


class FailingGuides:
    def advance(self, *_):
        raise RuntimeError("cannot schedule new futures after shutdown")


class UnwillingList(list):
    def append(self, _):
        raise MemoryError("no room")


def opened(num_choices):
    """Return a bridge whose choices have one event each, the choices and their inboxes."""
    bridge = EngineBridge(RecordedEngine(num_choices), FailingGuides())
    choices = [Choice(number, None, None, None, frozenset()) for number in range(num_choices)]
    inboxes = [Inbox() for _ in choices]
    for number, (choice, inbox) in enumerate(zip(choices, inboxes, strict=True), 1):
        choice.request_id = number
        bridge.routes[number] = (choice, inbox)
    return bridge, choices, inboxes


def check_that_only_the_second_ended(bridge, choices, inboxes, message):
    assert [choice.arrived for choice in choices if choice is not choices[1]] == [[TOKEN]] * 2
    assert all(
        list(inbox.ready) == [choice] for choice, inbox in zip(choices, inboxes, strict=True)
    )
    assert all(inbox.is_woken for inbox in inboxes)
    assert bridge.engine.cancelled == [2]
    assert sorted(bridge.routes) == [1, 3]
    with pytest.raises(ApiError, match=message) as caught:
        choices[1].finish()
    assert caught.value.status_code == 500


def test_an_event_that_cannot_be_taken_ends_its_choice_alone() -> None:
    bridge, choices, inboxes = opened(3)
    choices[1].arrived = UnwillingList()
    bridge.deliver()
    check_that_only_the_second_ended(bridge, choices, inboxes, "handling an engine event failed")


def test_a_guide_that_cannot_be_asked_ends_its_choice_alone() -> None:
    bridge, choices, inboxes = opened(3)
    choices[1].guide = object()
    bridge.deliver()
    message = "computing the mask for the next token failed"
    check_that_only_the_second_ended(bridge, choices, inboxes, message)


def test_a_stream_that_cannot_be_looked_after_leaves_the_others() -> None:
    looked_after = []

    def fail(*_):
        looked_after.append("failed")
        raise RuntimeError("no transport")

    class Streams(list):
        def __iter__(self):
            yield SimpleNamespace(look_after=fail)
            yield SimpleNamespace(look_after=lambda *_: looked_after.append("seen"))

    service = SimpleNamespace(
        admission=SimpleNamespace(patience_seconds=lambda: 1.0),
        settings=SimpleNamespace(keep_alive_comment_seconds=1.0),
        streams=Streams(),
    )

    async def run():
        care = asyncio.create_task(look_after_streams(service, period_seconds=0.001))
        while looked_after.count("seen") < 3:
            assert not care.done()
            await asyncio.sleep(0.001)
        care.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert looked_after[:2] == ["failed", "seen"]


def test_the_tokens_of_one_delivery_reach_the_guide_in_order_with_the_last_drafts() -> None:
    found = []
    bridge, choices, _ = opened(1)
    bridge.guides = SimpleNamespace(advance=lambda news, _refuse: found.append(news))
    bridge.engine = RecordedEngine(3)
    records = bridge.engine.records
    records["request_id"], records["token_id"], records["num_drafts"] = 1, [7, 8, 9], [1, 0, 2]
    records["drafts"][2] = [4, 5, 6, 0, 0, 0, 0]
    choices[0].guide = object()
    bridge.deliver()
    assert found == [{choices[0]: NewTokens([7, 8, 9], [4, 5])}]

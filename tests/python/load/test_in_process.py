"""Tokens of an engine in this process, by the times that it states."""

from types import SimpleNamespace

import pytest

from glm_engine.load.arrived import Arrived
from glm_engine.load.figures import make_figures
from glm_engine.load.in_process import Feeding
from glm_engine.load.records import Record

NS = 1_000_000_000
NUMBER = 7


def event(kind, seconds):
    return SimpleNamespace(
        request_id=NUMBER, kind=kind, time_ns=int(seconds * NS), cached_tokens=3, message=""
    )


def test_tokens_of_one_forward_pass_share_its_time():
    feeding = Feeding(None, [], None, lambda _: None)
    record = Record(feeding.outcome.start, 6, began=1.0)
    feeding.outcome.records.append(record)
    feeding.live[NUMBER] = (record, Arrived())
    for seconds in (1.5, 2.0, 2.0, 2.0, 2.0, 2.25):
        feeding.take(event("token", seconds))
    feeding.take(event("finished", 2.25))
    assert record.gaps.tolist() == [0.125, 0.125, 0.125, 0.125, 0.25]
    assert (record.num_events, record.completion_tokens, record.cached_tokens) == (6, 6, 3)
    assert (record.first, record.last, record.ended) == (1.5, 2.25, 2.25)
    figures = make_figures(1.0, [feeding.outcome], {})
    assert figures["itl_ms"]["p50"] == 125.0
    assert figures["itl_ms"]["max"] == 250.0
    assert figures["tpot_ms"]["mean"] == pytest.approx(150.0)

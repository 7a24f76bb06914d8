"""Figures of records whose truth is known, and percentiles against their definition."""

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.core.errors import BadInputError
from glm_engine.load.figures import make_figures, parse_goodput, peak_concurrency, summary
from glm_engine.load.records import Outcome, Record


def record(began=100.0, ttft=0.2, gaps=(0.1, 0.3), tokens=3, outcome="200", late=0.0, wanted=3):
    """A request that ends with its last event."""
    last = began + ttft + sum(gaps)
    return Record(
        due=began - late,
        max_tokens=wanted,
        began=began,
        outcome=outcome,
        ended=last,
        first=began + ttft,
        last=last,
        num_events=1 + len(gaps),
        gaps=array("d", gaps),
        prompt_tokens=10,
        completion_tokens=tokens,
        message="" if outcome == "200" else "why",
    )


def figures_of(records, limits=None, rate=2.0, cpu_seconds=0.5):
    return make_figures(rate, [Outcome(100.0, records, cpu_seconds)], limits or {})


def test_the_figures_of_two_requests():
    found = figures_of([record(), record(began=101.0, ttft=0.4, gaps=(1.2, 0.4), late=0.01)])
    assert found["duration_s"] == pytest.approx(3.0)
    assert found["requests_per_second"] == pytest.approx(2 / 3)
    assert found["prompt_tokens_per_second"] == pytest.approx(20 / 3)
    assert found["output_tokens_per_second"] == pytest.approx(2.0)
    assert found["ttft_ms"]["mean"] == pytest.approx(300)
    assert found["tpot_ms"]["max"] == pytest.approx(800)
    assert found["itl_ms"]["mean"] == pytest.approx(500)
    assert found["e2e_ms"]["max"] == pytest.approx(2000)
    assert found["lateness_ms"]["max"] == pytest.approx(10)
    assert found["client_cpu_share"] == pytest.approx(0.5 / 3)
    assert found["arrivals_per_second"] == pytest.approx(2.0)


def test_tokens_that_share_an_event_count_for_tpot_and_not_for_itl():
    found = figures_of([record(ttft=0.5, gaps=(1.0,), tokens=5)])
    assert found["tpot_ms"]["mean"] == pytest.approx(250)
    assert found["itl_ms"]["mean"] == pytest.approx(1000)
    assert (found["num_events"], found["output_tokens"]) == (2, 5)


def test_what_failed_is_counted_by_its_status_and_measures_nothing():
    failed = [record(outcome="429", ttft=9.0), record(outcome="429"), record(outcome="cut off")]
    found = figures_of([record(), *failed])
    assert found["outcomes"] == {"429": 2, "200": 1, "cut off": 1}
    assert found["messages"] == ["429: why", "cut off: why"]
    assert found["num_completed"] == 1
    assert found["ttft_ms"]["max"] == pytest.approx(200)
    assert found["output_tokens"] == 3


def test_nothing_completed_has_no_latencies():
    found = figures_of([record(outcome="500")])
    assert found["ttft_ms"] is found["tpot_ms"] is found["itl_ms"] is found["e2e_ms"] is None
    assert found["output_tokens_per_second"] == 0


def test_nothing_sent():
    found = figures_of([], rate=math.inf)
    assert (found["num_sent"], found["duration_s"], found["rate"]) == (0, 0.0, None)


def test_shorter_answers_are_counted():
    assert figures_of([record(), record(wanted=4)])["num_shorter"] == 1


def test_goodput_keeps_every_limit():
    limits = parse_goodput("ttft:250ms, tpot:0.25s")
    assert limits == {"ttft": 0.25, "tpot": 0.25}
    slow_first, slow_rest = record(ttft=0.3, gaps=()), record(gaps=(0.3, 0.3))
    found = figures_of([record(), slow_first, slow_rest, record(outcome="429")], limits)
    assert found["goodput"]["num_good"] == 1
    assert found["goodput"]["requests_per_second"] == pytest.approx(1 / 0.8)


def test_an_answer_without_a_token_is_never_good():
    empty = record(gaps=(), tokens=0)
    empty.num_events, empty.first = 0, None
    found = figures_of([record(), empty], parse_goodput("e2e:9s"))
    assert (found["num_completed"], found["goodput"]["num_good"]) == (2, 1)


def test_answers_without_usage_are_counted_and_not_called_shorter():
    silent = record(tokens=0)
    silent.has_usage = False
    found = figures_of([record(), silent], parse_goodput("e2e:9s"))
    assert (found["num_without_usage"], found["num_shorter"]) == (1, 0)
    assert found["goodput"]["num_good"] == 2


def test_the_requests_of_a_lost_process_are_counted():
    outcomes = [Outcome(100.0, [record()]), Outcome(100.0, num_lost=4)]
    found = make_figures(2.0, outcomes, {})
    assert found["outcomes"] == {"client process lost": 4, "200": 1}
    assert found["num_sent"] == 1


def test_one_token_has_no_tpot_that_could_be_missed():
    found = figures_of([record(gaps=(), tokens=1, wanted=1)], parse_goodput("tpot:1ms"))
    assert found["goodput"]["num_good"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttft",
        "ttft:5",
        "ttft:5m",
        "itl:5ms",
        "ttft:1s,ttft:2s",
        "ttft:-1s",
        "e2e:s",
        f"e2e:{'9' * 400}s",
    ],
)
def test_goodput_limits_that_are_none(text):
    with pytest.raises(BadInputError, match="goodput"):
        parse_goodput(text)


def percentile(values, share):
    """Linear interpolation between the two nearest ranks."""
    ordered, place = sorted(values), share * (len(values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40))
def test_percentiles(values):
    found = summary(values)
    for number in (50, 90, 99):
        assert found[f"p{number}"] == pytest.approx(1e3 * percentile(values, number / 100))
    assert found["max"] == pytest.approx(1e3 * max(values))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), max_size=20))
def test_the_peak_of_concurrency(spans):
    records = [Record(0.0, 1, float(began), ended=float(began + took)) for began, took in spans]
    at_once = [sum(began <= second < began + took for began, took in spans) for second in range(61)]
    assert peak_concurrency(records) == max(at_once)

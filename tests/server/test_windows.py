"""Histograms and rates of the last minute, beside sums over plain lists."""

import random

import pytest

from glm_engine.server.http.metrics import BOUNDS, RATIO, RecentCount, SecondsHistogram


def test_nothing_measured() -> None:
    histogram = SecondsHistogram()
    assert histogram.percentiles(5.0, (50, 99)) == {50: None, 99: None}
    assert histogram.cumulative(5)[-1] == ("+Inf", 0)
    assert RecentCount().per_second(9.0) is None


@pytest.mark.parametrize("wanted", [1, 50, 90, 99, 100])
def test_percentiles_are_within_a_bucket(wanted) -> None:
    generator = random.Random(4)
    durations = [generator.lognormvariate(-3, 1.5) for _ in range(3000)]
    histogram = SecondsHistogram()
    for at, seconds in enumerate(durations):
        histogram.add(seconds, 1000 + at / 100)
    exact = sorted(durations)[max(0, -(-len(durations) * wanted // 100) - 1)]
    found = histogram.percentiles(1030.0, (wanted,))[wanted]
    assert exact <= found <= max(exact * RATIO, BOUNDS[0]) * 1.000001


def test_a_minute_later_all_is_forgotten_but_the_totals() -> None:
    histogram, counter = SecondsHistogram(), RecentCount()
    for second in range(100, 110):
        histogram.add(0.25, second, count=2)
        counter.add(30, second)
    assert sum(histogram.recent(165.0).values()) == 2 * 4
    assert histogram.percentiles(175.0, (50,)) == {50: None}
    assert histogram.cumulative(5)[-1] == ("+Inf", 20)
    assert histogram.sum == pytest.approx(5.0)
    assert counter.per_second(110.0) == pytest.approx(30)
    assert counter.per_second(175.0) is None
    assert counter.total == 300


@pytest.mark.parametrize(("seconds", "last_finite"), [(0.0, 1), (1e9, 0)])
def test_values_beyond_the_bounds(seconds, last_finite) -> None:
    histogram = SecondsHistogram()
    histogram.add(seconds, 1.0)
    rows = histogram.cumulative(1)
    assert rows[-1] == ("+Inf", 1)
    assert rows[-2][1] == last_finite
    counts = [count for _, count in rows]
    assert counts == sorted(counts)

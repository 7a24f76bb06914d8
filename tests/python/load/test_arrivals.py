"""Due times against the moments of a gamma process."""

import math
from itertools import pairwise
from statistics import fmean, stdev

import pytest
from numpy.random import default_rng

from glm_engine.core.errors import BadInputError
from glm_engine.load.arrivals import due_times, parse_rates

COUNT = 20_000


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_the_spread_of_the_burstiness(burstiness):
    times = due_times(default_rng(1), 50.0, burstiness, num_requests=COUNT)
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times])]
    assert len(gaps) == COUNT
    assert min(gaps) >= 0
    assert fmean(gaps) == pytest.approx(1 / 50, rel=0.05)
    assert stdev(gaps) / fmean(gaps) == pytest.approx(1 / math.sqrt(burstiness), rel=0.05)


def test_the_counts_of_seconds_are_those_of_a_poisson_process():
    times = due_times(default_rng(2), 10.0, 1.0, seconds=2000.0)
    counts = [0] * 2000
    for time in times:
        counts[int(time)] += 1
    assert max(times) < 2000
    assert fmean(counts) == pytest.approx(10, rel=0.03)
    assert stdev(counts) ** 2 == pytest.approx(10, rel=0.12)


def test_a_rate_of_inf_is_all_at_once():
    assert due_times(default_rng(1), math.inf, 1.0, num_requests=3) == [0.0, 0.0, 0.0]


def test_a_rate_of_inf_needs_a_number():
    with pytest.raises(BadInputError, match="--rate inf needs --requests"):
        parse_rates("1,inf", is_timed=True)


def test_more_requests_than_anyone_means_are_refused():
    with pytest.raises(BadInputError, match="more than 1,000,000 requests at a rate of 1e"):
        due_times(default_rng(1), 1e9, 1.0, seconds=60.0)


def test_as_many_at_once_are_refused():
    with pytest.raises(BadInputError, match="more than 1,000,000 requests at a rate of inf"):
        due_times(default_rng(1), math.inf, 1.0, num_requests=10**9)


@pytest.mark.parametrize("text", ["1e-300", "1e300", "1e400", "5,1e-7"])
def test_rates_that_nobody_means(text):
    with pytest.raises(BadInputError, match="expected 1e-06 to 1e"):
        parse_rates(text)


def test_rates():
    assert parse_rates("1, 2.5,inf") == [1.0, 2.5, math.inf]


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "1,,2", "fast", "1,1.0", "inf,inf"])
def test_rates_that_are_none(text):
    with pytest.raises(BadInputError, match="--rate "):
        parse_rates(text)

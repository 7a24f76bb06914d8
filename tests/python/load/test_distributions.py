"""Drawn lengths against the moments that their distributions have."""

import math
from statistics import fmean, median, stdev

import pytest
from numpy.random import default_rng

from glm_engine.core.errors import BadInputError
from glm_engine.load.distributions import parse_lengths

COUNT = 20_000


def drawn(text: str, seed: int = 1) -> list[int]:
    numbers = parse_lengths(text).draw(default_rng(seed), COUNT)
    assert len(numbers) == COUNT
    assert all(type(number) is int for number in numbers)
    return numbers


def test_fixed():
    assert set(drawn("fixed:128")) == {128}


@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 7), (32, 512)])
def test_uniform_reaches_both_ends_alike(least, most):
    numbers = drawn(f"uniform:{least}:{most}")
    assert (min(numbers), max(numbers)) == (least, most)
    width = most - least + 1
    assert fmean(numbers) == pytest.approx((least + most) / 2, abs=4 * width / math.sqrt(COUNT))


def test_lognormal_has_its_median_and_sigma():
    numbers = drawn("lognormal:1000:0.8")
    assert median(numbers) == pytest.approx(1000, rel=0.04)
    assert stdev(map(math.log, numbers)) == pytest.approx(0.8, rel=0.03)


def test_lognormal_stays_between_one_and_its_most():
    numbers = drawn("lognormal:2:3:50")
    assert (min(numbers), max(numbers)) == (1, 50)


def test_a_number_alone_is_a_fixed_length():
    assert drawn("7") == drawn("fixed:7")


def test_no_length_is_longer_than_a_server_could_read():
    assert max(drawn("lognormal:2147483647:10")) == 2**31 - 1


@pytest.mark.parametrize("text", ["uniform:1:1000", "lognormal:100:1"])
def test_the_seed_decides(text):
    assert drawn(text, 1) == drawn(text, 1) != drawn(text, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("normal:3", "lengths: expected N, uniform:MIN:MAX or lognormal"),
        ("", "lognormal:MEDIAN:SIGMA[:MAX], got ''"),
        ("fixed", "got 'fixed'"),
        ("fixed:", "got 'fixed:'"),
        ("fixed:1:2", "got 'fixed:1:2'"),
        ("fixed:0", "expected a whole number above 0, got '0'"),
        ("0", "expected a whole number above 0, got '0'"),
        ("-3", "got '-3'"),
        ("fixed:-3", "expected a whole number above 0, got '-3'"),
        ("fixed:²", "expected a whole number above 0, got"),
        ("fixed:2147483648", "expected at most 2,147,483,647, got 2147483648"),
        (f"fixed:{'9' * 5000}", "expected at most 2,147,483,647"),
        ("uniform:1:99999999999999999999", "expected at most"),
        ("lognormal:9:1:99999999999999999999", "expected at most"),
        ("uniform:5", "got 'uniform:5'"),
        ("uniform:9:5", "the minimum 9 is above the maximum 5"),
        ("lognormal:10", "got 'lognormal:10'"),
        ("lognormal:10:x", "expected sigma above 0 and up to 10, got 'x'"),
        ("lognormal:10:nan", "got 'nan'"),
        ("lognormal:10:0", "up to 10, got '0'"),
        ("lognormal:10:1:none", "got 'none'"),
    ],
)
def test_refusals(text, words):
    with pytest.raises(BadInputError) as caught:
        parse_lengths(text)
    assert words in str(caught.value)

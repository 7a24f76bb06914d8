"""Drawn lengths against the moments that their distributions have."""

import math
from statistics import fmean, median, stdev

import pytest
from numpy.random import default_rng

from glm_engine.errors import BadInputError
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


def test_no_length_is_longer_than_a_server_could_read():
    assert max(drawn("lognormal:2147483647:10")) == 2**31 - 1


@pytest.mark.parametrize("text", ["uniform:1:1000", "lognormal:100:1"])
def test_the_seed_decides(text):
    assert drawn(text, 1) == drawn(text, 1) != drawn(text, 2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("normal:3", "unknown distribution of lengths 'normal:3'; known are fixed:N, uniform"),
        ("", "unknown distribution"),
        ("fixed", "0 numbers"),
        ("fixed:", "0 numbers"),
        ("fixed:1:2", "2 numbers"),
        ("fixed:0", "'0' is not a whole number above 0"),
        ("fixed:-3", "'-3' is not"),
        ("fixed:²", "is not a whole number"),
        ("fixed:2147483648", "2147483648 is above 2,147,483,647"),
        (f"fixed:{'9' * 5000}", "is above 2,147,483,647"),
        ("uniform:1:99999999999999999999", "is above"),
        ("lognormal:9:1:99999999999999999999", "is above"),
        ("uniform:5", "1 numbers"),
        ("uniform:9:5", "the least, 9, is above the most, 5"),
        ("lognormal:10", "1 numbers"),
        ("lognormal:10:x", "sigma is 'x'"),
        ("lognormal:10:nan", "sigma is 'nan'"),
        ("lognormal:10:0", "sigma is '0'"),
        ("lognormal:10:1:none", "'none' is not"),
    ],
)
def test_refusals(text, words):
    with pytest.raises(BadInputError) as caught:
        parse_lengths(text)
    assert words in str(caught.value)

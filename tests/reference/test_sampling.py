import numpy as np
import pytest

from glm_engine.verify.drawing import Controls
from tests.reference import sampling
from tests.reference.sampling import History, sample
from tests.shapes import generator, seed_note

KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def no_history(size: int) -> History:
    return History(np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool))


def kept(logits: list[float], **controls) -> list[int]:
    final = sampling.candidates(np.array(logits, dtype=float), Controls(**controls))
    return np.flatnonzero(np.isfinite(final)).tolist()


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers_of_its_authors(counter, key, expected):
    assert sampling.philox(counter, key) == expected


def test_uniform_stays_inside_the_open_interval():
    for word in (0, 1, 0x7FFFFFFF, 0xFFFFFFFF):
        assert 0 < sampling.uniform(word) < 1


def test_temperature_zero_takes_the_greatest_and_the_lower_of_ties():
    logits = np.array([1.0, 3.0, 3.0, 2.0])
    for seed in range(5):
        assert sample(logits, Controls(temperature=0, seed=seed)).token == 1


def test_frequencies_follow_the_softmax():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    draws = [sample(logits, Controls(seed=7, position=at)).token for at in range(4000)]
    shares = np.bincount(draws, minlength=4) / len(draws)
    assert np.abs(shares - np.exp(logits)).max() < 0.025


def test_seed_and_position_decide_everything():
    logits = generator("seeds").standard_normal(50)
    first = [sample(logits, Controls(seed=3, position=at)).token for at in range(20)]
    again = [sample(logits, Controls(seed=3, position=at)).token for at in range(20)]
    other = [sample(logits, Controls(seed=4, position=at)).token for at in range(20)]
    assert first == again, seed_note()
    assert first != other, seed_note()


def test_seeds_above_32_bits_matter():
    low, high = Controls(seed=1), Controls(seed=1 + (1 << 40))
    assert sample(np.zeros(64), low).token != sample(np.zeros(64), high).token


def test_min_p_keeps_what_is_likely_enough():
    assert kept(np.log([0.5, 0.25, 0.05]), min_p=0.5) == [0, 1]
    assert kept(np.log([0.5, 0.25, 0.05]), min_p=0.0) == [0, 1, 2]
    assert kept([1.0, 1.0, 0.0], min_p=1.0) == [0, 1]


def test_top_k_keeps_ties_of_its_last_member():
    assert kept([3, 2, 2, 1], top_k=2) == [0, 1, 2]
    assert kept([3, 2, 2, 1], top_k=1) == [0]
    assert kept([3, 2, 2, 1], top_k=0) == [0, 1, 2, 3]
    assert kept([3, 2, 2, 1], top_k=9) == [0, 1, 2, 3]


def test_top_p_keeps_the_fewest_that_hold_it():
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    assert kept(logits, top_p=0.4) == [0]
    assert kept(logits, top_p=0.6) == [0, 1]
    assert kept(logits, top_p=0.9) == [0, 1, 2]
    assert kept(logits, top_p=1.0) == [0, 1, 2, 3]
    assert kept(logits, top_p=1e-9) == [0]


def test_top_p_counts_what_top_k_left():
    assert kept(np.log([0.4, 0.3, 0.2, 0.1]), top_k=2, top_p=0.57) == [0]


def test_penalties_by_hand():
    history = History(np.array([0, 2, 0, 1]), np.array([True, False, False, True]))
    controls = Controls(repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25)
    result = sampling.adjusted(np.array([4.0, 4.0, 4.0, -4.0]), controls, history)
    assert result.tolist() == [2.0, 2.0 - 1.0 - 0.25, 4.0, -8.0 - 0.5 - 0.25]


def test_bias_and_mask():
    allowed = np.array([False, True, True])
    controls = Controls(temperature=0, biases={2: 5.0}, allowed=allowed)
    choice = sample(np.array([9.0, 2.0, 0.0]), controls)
    assert choice.token == 2
    assert choice.logprobs[0] == -np.inf
    assert np.isclose(np.exp(choice.logprobs[1:]).sum(), 1.0)


def test_a_near_tie_is_not_decided():
    undecided = sample(np.array([1.0, 1.0 + 1e-7]), Controls(temperature=0))
    assert not undecided.is_decided
    assert sample(np.array([1.0, 1.1]), Controls(temperature=0)).is_decided


def test_history_defaults_to_none_seen():
    logits = generator("history").standard_normal(9)
    controls = Controls(repetition_penalty=3.0, presence_penalty=1.0, seed=5)
    alone, given = sample(logits, controls), sample(logits, controls, no_history(9))
    assert alone.token == given.token
    assert np.array_equal(alone.logprobs, given.logprobs)

"""Thresholds: ties, logits that are nearly equal, vocabularies as long as the models'."""

import numpy as np
import pytest

from glm_engine.verify.drawing import MAX_LOGPROBS, Controls, draw
from tests import shapes
from tests.native.calls import counted
from tests.reference.compare import log_softmax
from tests.reference.sampling import candidates, sample


def test_ties_at_a_threshold_are_all_kept(device):
    logits = np.array([2.0, 1.0, 1.0, 1.0, 0.0, -1.0], np.float32)
    for control in ({"top_k": 2}, {"top_p": 0.5}, {"min_p": float(np.exp(-1.0)) - 1e-6}):
        controls = [Controls(seed=1, position=p, **control) for p in range(500)]
        tokens = draw(device, np.tile(logits, (500, 1)), controls).token_ids
        assert set(tokens) == {0, 1, 2, 3}


def test_ties_of_the_greatest_are_all_kept(device):
    logits = np.array([1.0, 3.0, 3.0, 0.0, 3.0, -40.0], np.float32)
    for control in ({"top_k": 1}, {"top_p": 0.2}, {"min_p": 1.0}):
        controls = [Controls(seed=1, position=p, **control) for p in range(500)]
        tokens = draw(device, np.tile(logits, (500, 1)), controls).token_ids
        assert set(tokens) == {1, 2, 4}


@pytest.mark.parametrize("step", [2.0**-20, 2.0**-8])
@pytest.mark.parametrize("control", [{"top_k": 32}, {"top_p": 0.49}], ids=str)
def test_a_threshold_parts_logits_that_are_nearly_equal(device, control, step):
    order = shapes.generator("nearly equal").permutation(64)
    logits = (-step * order).astype(np.float32)
    controls = [Controls(seed=1, position=p, **control) for p in range(1000)]
    tokens = draw(device, np.tile(logits, (1000, 1)), controls).token_ids
    allowed = candidates(logits.astype(np.float64), controls[0])
    assert set(tokens) == set(np.flatnonzero(np.isfinite(allowed)))


@pytest.mark.parametrize("vocab", [20483, 151552])
@pytest.mark.parametrize("scale", [0.0, 0.5, 6.0])
def test_large_vocabularies(device, vocab, scale):
    rng = shapes.generator("large", vocab, int(10 * scale))
    wanted = [
        {"temperature": 0.0},
        {"top_k": 50, "temperature": 0.8},
        {"top_p": 0.9},
        {"min_p": 0.05, "top_k": 40, "top_p": 0.95, "temperature": 1.5},
    ]
    controls = [Controls(seed=int(rng.integers(2**40)), **each) for each in wanted]
    logits = (scale * rng.standard_normal((len(wanted), vocab))).astype(np.float32)
    drawn = draw(device, logits, controls, MAX_LOGPROBS)
    for row, control in enumerate(controls):
        allowed = candidates(logits[row].astype(np.float64), control) if row else logits[row]
        token = drawn.token_ids[row]
        assert np.isfinite(allowed[token])
        if not row:
            assert token == np.argmax(logits[row])
        logprobs = log_softmax(logits[row])
        np.testing.assert_allclose(drawn.logprob[row], logprobs[token], atol=2e-5)
        best = np.argsort(-logprobs, kind="stable")[:MAX_LOGPROBS]
        np.testing.assert_array_equal(drawn.top_ids[row], best)


@pytest.mark.parametrize("vocab", [151552, 151553])
def test_a_long_vocabulary_draws_the_oracles_token(device, vocab):
    rng = shapes.generator("long", vocab)
    scales, temperatures = np.array([[1.0], [3.0], [9.0], [1.0]]), (1.0, 0.7, 1.0, 1.0)
    logits = (scales * rng.standard_normal((len(scales), vocab))).astype(np.float32)
    logits[-1, 77] = 40.0
    histories, counts = counted(rng.poisson(0.02, logits.shape), rng.random(logits.shape) < 0.02)
    controls = [
        Controls(seed=row, temperature=temperature, top_p=0.95, repetition_penalty=1.1)
        for row, temperature in enumerate(temperatures)
    ]
    drawn = draw(device, logits, controls, -1, counts, list(range(len(scales))))
    choices = list(map(sample, logits, controls, histories))
    decided = np.array([choice.is_decided for choice in choices])
    assert np.sum(decided) >= len(choices) - 1
    expected = np.array([choice.token for choice in choices])
    np.testing.assert_array_equal(drawn.token_ids[decided], expected[decided])

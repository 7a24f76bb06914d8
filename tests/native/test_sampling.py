import numpy as np
import pytest

from glm_engine.verify.drawing import MAX_LOGPROBS, Controls, draw
from glm_engine.verify.steps import PROMPT
from tests import shapes
from tests.native.calls import counted
from tests.reference.sampling import candidates, sample

VOCABS = (131, 132)
NUM_ROWS = 24

CONTROLS = {
    "plain": {},
    "greedy": {"temperature": 0.0},
    "cold": {"temperature": 0.3},
    "hot": {"temperature": 3.0},
    "top_k": {"top_k": 5},
    "top_k_one": {"top_k": 1},
    "top_k_more_than_all": {"top_k": VOCABS[-1] + 1},
    "top_p": {"top_p": 0.7},
    "top_p_tiny": {"top_p": 1e-6},
    "min_p": {"min_p": 0.1},
    "min_p_one": {"min_p": 1.0},
    "all_three": {"min_p": 0.02, "top_k": 20, "top_p": 0.8, "temperature": 1.7},
    "repetition": {"repetition_penalty": 1.7},
    "rewarded_repetition": {"repetition_penalty": 0.5, "temperature": 0.0},
    "frequency": {"frequency_penalty": 0.8},
    "presence": {"presence_penalty": -1.5},
    "penalties": {
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.4,
        "temperature": 0.0,
    },
    "bias": {"biases": {3: 6.0, 130: -4.0, 0: 2.5}},
    "mask": {"mask": True},
    "everything": {
        "temperature": 1.3,
        "min_p": 0.01,
        "top_k": 40,
        "top_p": 0.9,
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.1,
        "biases": {7: 1.0, 64: 3.0},
        "mask": True,
    },
}


def problem(name: str, vocab: int):
    """(logits, controls of each row, histories, counts)."""
    rng = shapes.generator("sampling", name, vocab)
    logits = (3 * rng.standard_normal((NUM_ROWS, vocab))).astype(np.float32)
    wanted = dict(CONTROLS[name])
    masked = wanted.pop("mask", False)
    controls = [
        Controls(
            seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
            position=int(rng.integers(0, 2**31)),
            allowed=rng.random(vocab) < 0.3 if masked and row % 3 else None,
            **wanted,
        )
        for row in range(NUM_ROWS)
    ]
    outputs = rng.poisson(0.5, (NUM_ROWS, vocab))
    in_prompt = rng.random((NUM_ROWS, vocab)) < 0.2
    return logits, controls, *counted(outputs, in_prompt)


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("name", CONTROLS)
def test_each_control_draws_the_oracles_token(device, name, vocab):
    logits, controls, histories, counts = problem(name, vocab)
    order = list(range(NUM_ROWS))[::-1]
    drawn = draw(device, logits, controls, 5, counts[::-1], order)
    num_decided = 0
    for row, (control, history) in enumerate(zip(controls, histories, strict=True)):
        choice = sample(logits[row], control, history)
        num_decided += choice.is_decided
        if choice.is_decided:
            assert drawn.token_ids[row] == choice.token
        token = drawn.token_ids[row]
        np.testing.assert_allclose(drawn.logprob[row], choice.logprobs[token], atol=2e-5)
        best = np.argsort(-choice.logprobs, kind="stable")[:5]
        np.testing.assert_array_equal(drawn.top_ids[row, :5], best)
        np.testing.assert_allclose(drawn.top_logprobs[row, :5], choice.logprobs[best], atol=2e-5)
    assert num_decided > NUM_ROWS * 0.9
    np.testing.assert_array_equal(drawn.is_finite, 1)
    np.testing.assert_array_equal(drawn.counts, counts[::-1])


@pytest.mark.parametrize("name", ["plain", "hot", "top_k", "top_p", "min_p", "all_three"])
def test_draws_follow_the_distribution(device, name):
    vocab, num_draws = 17, 4000
    logits = (1.5 * shapes.generator("chi", name).standard_normal(vocab)).astype(np.float32)
    controls = [Controls(seed=41, position=p, **CONTROLS[name]) for p in range(num_draws)]
    drawn = draw(device, np.tile(logits, (num_draws, 1)), controls)
    scaled = candidates(logits.astype(np.float64), controls[0])
    weights = np.exp(scaled - np.max(scaled))
    expected = num_draws * weights / np.sum(weights)
    seen = np.bincount(drawn.token_ids, minlength=vocab)
    assert np.all(seen[expected == 0] == 0)
    kept = expected > 0
    freedom = np.sum(kept) - 1
    statistic = np.sum((seen[kept] - expected[kept]) ** 2 / expected[kept])
    assert statistic < freedom + 5 * np.sqrt(2 * freedom) + 5


def test_seeds_and_positions_give_independent_streams(device):
    logits = np.zeros((400, 8), np.float32)
    for controls in (
        [Controls(seed=s, position=3) for s in range(400)],
        [Controls(seed=s << 32, position=3) for s in range(400)],
        [Controls(seed=5, position=p) for p in range(400)],
    ):
        tokens = draw(device, logits, controls).token_ids
        seen = np.bincount(tokens, minlength=8)
        assert np.sum((seen - 50) ** 2 / 50) < 30
        repeated = np.mean(tokens[1:] == tokens[:-1])
        assert abs(repeated - 1 / 8) < 0.08
        np.testing.assert_array_equal(draw(device, logits, controls).token_ids, tokens)


def test_greedy_ties_go_to_the_lower_id(device):
    logits = np.array([[0.0, 5.0, 5.0, -1.0], [1.0, 1.0, 1.0, 1.0]], np.float32)
    drawn = draw(device, logits, [Controls(temperature=0.0)] * 2)
    np.testing.assert_array_equal(drawn.token_ids, [1, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_draw_nothing(device, bad):
    logits = shapes.generator("bad").standard_normal((3, 65)).astype(np.float32)
    logits[1, 64] = bad
    drawn = draw(device, logits, [Controls(seed=r) for r in range(3)], 2)
    np.testing.assert_array_equal(drawn.is_finite, [1, 0, 1])
    assert drawn.token_ids[1] == -1
    assert np.all(drawn.token_ids[[0, 2]] >= 0)


def test_a_mask_that_allows_one_token_or_none(device):
    one, none = np.zeros(33, bool), np.zeros(33, bool)
    one[32] = True
    logits = np.zeros((4, 33), np.float32)
    controls = [
        Controls(temperature=temperature, allowed=allowed, top_p=0.5, top_k=3)
        for temperature in (0.0, 1.0)
        for allowed in (one, none)
    ]
    drawn = draw(device, logits, controls, 3)
    np.testing.assert_array_equal(drawn.token_ids, [32, -1, 32, -1])
    np.testing.assert_array_equal(drawn.logprob[[0, 2]], 0.0)
    np.testing.assert_array_equal(drawn.top_ids[[0, 2], :3], [[32, -1, -1]] * 2)


@pytest.mark.parametrize("num_logprobs", [-1, 0, 1, MAX_LOGPROBS])
@pytest.mark.parametrize("vocab", [1, 13, 200])
def test_number_of_log_probabilities(device, num_logprobs, vocab):
    logits = shapes.generator("best", vocab).standard_normal((2, vocab)).astype(np.float32)
    drawn = draw(device, logits, [Controls(seed=9)] * 2, [num_logprobs, 3])
    assert np.all(drawn.token_ids < vocab)
    for row, wanted in enumerate((num_logprobs, 3)):
        count = min(max(wanted, 0), vocab)
        logprobs = sample(logits[row], Controls(seed=9)).logprobs
        best = np.argsort(-logprobs, kind="stable")[:count]
        np.testing.assert_array_equal(drawn.top_ids[row, :count], best)
        np.testing.assert_allclose(drawn.top_logprobs[row, :count], logprobs[best], atol=2e-5)
        if wanted >= 0:
            token = drawn.token_ids[row]
            np.testing.assert_allclose(drawn.logprob[row], logprobs[token], atol=2e-5)


@pytest.mark.parametrize("name", ["greedy", "plain", "top_k_one", "everything"])
@pytest.mark.parametrize("num_rows", [3, NUM_ROWS])
def test_a_forced_token_is_taken_whatever_the_logits_say(device, name, num_rows):
    vocab = VOCABS[0]
    logits, controls, histories, counts = (part[:num_rows] for part in problem(name, vocab))
    forced = shapes.generator("forced", name).integers(0, vocab, num_rows)
    rows = list(range(num_rows))
    drawn = draw(device, logits, controls, 5, counts, rows, forced)
    free = draw(device, logits, controls, 5, counts, rows)
    np.testing.assert_array_equal(drawn.token_ids, forced)
    np.testing.assert_array_equal(drawn.is_finite, 1)
    np.testing.assert_array_equal(drawn.top_ids, free.top_ids)
    np.testing.assert_array_equal(drawn.top_logprobs, free.top_logprobs)
    for row, token in enumerate(forced):
        logprobs = sample(logits[row], controls[row], histories[row]).logprobs
        np.testing.assert_allclose(drawn.logprob[row], logprobs[token], atol=2e-5)


def test_a_forced_token_needs_no_log_probabilities_and_disturbs_no_other_row(device):
    logits = shapes.generator("forced among others").standard_normal((40, 200)).astype(np.float32)
    controls = [Controls(seed=row, temperature=row % 2) for row in range(len(logits))]
    forced = np.where(np.arange(len(logits)) % 3, -1, 7)
    drawn, free = (
        draw(device, logits, controls, -1, forced_token=forced),
        draw(device, logits, controls),
    )
    np.testing.assert_array_equal(drawn.token_ids, np.where(forced < 0, free.token_ids, 7))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_not_finite_force_nothing(device, bad):
    logits = np.zeros((2, 33), np.float32)
    logits[1, 5] = bad
    drawn = draw(device, logits, [Controls()] * 2, 1, forced_token=4)
    np.testing.assert_array_equal(drawn.token_ids, [4, -1])
    np.testing.assert_array_equal(drawn.is_finite, [1, 0])


def test_a_mask_that_allows_nothing_or_not_the_forced_token(device):
    none, others = np.zeros(33, bool), np.arange(33) != 4
    controls = [Controls(allowed=allowed) for allowed in (none, others)]
    drawn = draw(device, np.zeros((2, 33), np.float32), controls, 1, forced_token=4)
    np.testing.assert_array_equal(drawn.token_ids, [-1, 4])
    np.testing.assert_array_equal(drawn.logprob, -np.inf)


def test_no_rows(device):
    drawn = draw(device, np.zeros((0, 7), np.float32), [])
    assert drawn.token_ids.shape == (0,)


def test_tiny_temperature_is_greedy(device):
    logits = shapes.generator("tiny").standard_normal((5, 65)).astype(np.float32)
    drawn = draw(device, logits, [Controls(temperature=1e-38, seed=r) for r in range(5)])
    np.testing.assert_array_equal(drawn.token_ids, np.argmax(logits, axis=1))


@pytest.mark.parametrize("reset", [0, 1])
def test_count_tokens(device, reset):
    counts = np.arange(30, dtype=np.uint32).reshape(3, 10)
    block = device.place(counts)
    for from_prompt, ids in ((1, [3, 3, 9]), (0, [3, 0, 0])):
        device.run(
            "count_tokens",
            counts=block,
            vocab_size=10,
            count_row=1,
            num_tokens=3,
            token_ids=device.place(np.array(ids, np.int32)),
            from_prompt=from_prompt,
            reset=reset if from_prompt else 0,
        )
    expected = counts.copy()
    expected[1] *= 1 - reset
    expected[1, [3, 9]] |= PROMPT
    expected[1, [3, 0]] += np.array([1, 2], np.uint32)
    np.testing.assert_array_equal(device.download(block, (3, 10), np.uint32), expected)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "extreme",
    [
        {"frequency_penalty": -3.4e38},
        {"presence_penalty": -3.4e38, "frequency_penalty": -3.4e38},
        {"repetition_penalty": 1e-38},
        {"biases": {5: 3.4e38}},
        {"biases": {5: float("inf")}},
    ],
    ids=str,
)
def test_extreme_controls_still_draw_a_token(device, extreme, temperature):
    logits = shapes.generator("extreme").standard_normal((3, 33)).astype(np.float32)
    logits[:, 5] = 4.0
    counts = np.zeros((3, 33), np.uint32)
    counts[:, 5] = 7
    controls = [Controls(temperature=temperature, seed=r, **extreme) for r in range(3)]
    drawn = draw(device, logits, controls, 2, counts, [0, 1, 2])
    np.testing.assert_array_equal(drawn.token_ids, 5)
    np.testing.assert_array_equal(drawn.logprob, 0.0)


def test_many_rows_draw_what_few_rows_draw(device):
    rng = shapes.generator("many rows")
    logits = (2 * rng.standard_normal((150, 1031))).astype(np.float32)
    controls = [Controls(seed=r, temperature=r % 3 / 2, top_p=0.9) for r in range(len(logits))]
    together = draw(device, logits, controls)
    for part in (slice(0, 1), slice(40, 57), slice(3, 3 + 33)):
        few = draw(device, logits[part], controls[part])
        np.testing.assert_array_equal(few.token_ids, together.token_ids[part])

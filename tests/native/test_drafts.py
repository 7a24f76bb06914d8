"""Rows of drafts: what they are sampled with, and which of them are accepted."""

import ctypes
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from glm_engine.verify.drawing import Controls, Drawn, draw
from glm_engine.verify.header import structs
from glm_engine.verify.steps import (
    FEW_IDS,
    STATE,
    Accepted,
    Rows,
    accept,
    random_acceptance,
    rows_of,
)
from tests import shapes
from tests.native.calls import counted
from tests.reference.acceptance import forced_id, rate_of
from tests.reference.sampling import History, sample

PENALTIES = {
    "repetition": {"repetition_penalty": 1.7},
    "frequency": {"frequency_penalty": 0.8, "temperature": 0.0},
    "presence": {"presence_penalty": -1.5, "temperature": 0.0},
    "all": {
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.4,
        "temperature": 1.3,
        "top_k": 40,
        "top_p": 0.9,
        "biases": {7: 1.0, 64: 3.0},
    },
}
VOCABS = (131, 132)


def problem(name: str, vocab: int, num_sequences: int, least: int, most: int):
    """(logits, controls of each row, rows, histories of the sequences, their counts)."""
    rng = shapes.generator("drafts", name, vocab, num_sequences)
    rows = rows_of(rng, rng.integers(least, most + 1, num_sequences))
    logits = (3 * rng.standard_normal((len(rows.offsets), vocab))).astype(np.float32)
    logits[:, :FEW_IDS] += 4
    controls = [
        Controls(seed=int(sequence), position=100 + int(offset), **PENALTIES[name])
        for sequence, offset in zip(rows.sequences, rows.offsets, strict=True)
    ]
    outputs = rng.poisson(0.5, (num_sequences, vocab))
    in_prompt = rng.random((num_sequences, vocab)) < 0.2
    return logits, controls, rows, *counted(outputs, in_prompt)


def draw_rows(device, logits, controls, rows: Rows, counts, part=slice(None)) -> Drawn:
    return draw(
        device,
        logits[part],
        controls[part],
        3,
        counts,
        rows.sequences[part],
        row_offset=rows.offsets[part],
        input_ids=rows.input_ids[: part.stop],
        first_row=part.start or 0,
    )


@pytest.mark.parametrize("vocab", VOCABS)
@pytest.mark.parametrize("num_sequences", [4, 30])
@pytest.mark.parametrize("name", PENALTIES)
def test_a_row_counts_the_drafts_before_it(device, name, num_sequences, vocab):
    logits, controls, rows, histories, counts = problem(name, vocab, num_sequences, 1, 4)
    drawn = draw_rows(device, logits, controls, rows, counts)
    num_decided = 0
    for row, control in enumerate(controls):
        history = histories[rows.sequences[row]]
        drafts = np.bincount(rows.drafts(row), minlength=vocab)
        seen = History(history.output_counts + drafts, history.in_prompt)
        choice = sample(logits[row], control, seen)
        num_decided += choice.is_decided
        if choice.is_decided:
            assert drawn.token_ids[row] == choice.token
        token = drawn.token_ids[row]
        np.testing.assert_allclose(drawn.logprob[row], choice.logprobs[token], atol=2e-5)
    assert num_decided > 0.9 * len(controls)
    np.testing.assert_array_equal(drawn.counts, counts)


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_ranks_that_begin_amid_a_sequence_draw_the_same(device, world_size, name):
    logits, controls, rows, _, counts = problem(name, VOCABS[0], 29, 3, 3)
    whole = draw_rows(device, logits, controls, rows, counts)
    rows_each = -(-len(controls) // world_size)
    assert any(rows.offsets[begin] > 1 for begin in range(rows_each, len(controls), rows_each))
    for begin in range(0, len(controls), rows_each):
        part = slice(begin, min(begin + rows_each, len(controls)))
        drawn = draw_rows(device, logits, controls, rows, counts, part)
        np.testing.assert_array_equal(drawn.token_ids, whole.token_ids[part])
        np.testing.assert_array_equal(drawn.logprob, whole.logprob[part])
        np.testing.assert_array_equal(drawn.top_logprobs, whole.top_logprobs[part])


def test_rows_share_a_list_of_biases(device):
    logits = np.zeros((5, 33), np.float32)
    controls = [Controls(temperature=0.0)] * 5
    tokens, values = np.array([4, 9, 20], np.int32), np.array([2, 3, 4], np.float32)
    biases = {
        "num_biases": 3,
        "bias_begin": device.place(np.array([0, 0, 2, 1, 3], np.int32)),
        "bias_end": device.place(np.array([2, 2, 3, 3, 3], np.int32)),
        "bias_tokens": device.place(tokens),
        "bias_values": device.place(values),
    }
    drawn = draw(device, logits, controls, biases=biases)
    np.testing.assert_array_equal(drawn.token_ids, [9, 9, 20, 20, 0])


def accepted_by_the_model(
    arrays: dict, counts: np.ndarray, states: np.ndarray, rate: float = -1.0, seed=None
) -> Accepted:
    """Sequence by sequence, from lists of its rows."""
    counts, states, sampled = counts.copy(), states.copy(), arrays["sampled_ids"].copy()
    begins = [row for row, offset in enumerate(arrays["row_offset"]) if offset == 0]
    for begin, end in pairwise([*begins, len(arrays["row_offset"])]):
        state_row = arrays["state_row"][begin]
        if state_row < 0:
            continue
        live = [row for row in range(begin, end) if arrays["state_row"][row] == state_row]
        chain = [live[0]]
        for row in live[1:]:
            if row != chain[-1] + 1:
                break
            place = int(arrays["position"][row - 1]), int(arrays["input_ids"][row])
            if rate >= 0:
                sampled[row - 1] = forced_id(
                    int(seed[row - 1]), *place, rate, int(sampled[row - 1]), counts.shape[1]
                )
            if arrays["input_ids"][row] != sampled[row - 1]:
                break
            chain.append(row)
        last = chain[-1]
        states[state_row] = (
            arrays["position"][last] + 1,
            sampled[last],
            len(chain) - 1,
            -1,
        )
        for row in chain:
            if arrays["count_row"][row] >= 0 and sampled[row] >= 0:
                counts[arrays["count_row"][row], sampled[row]] += 1
    return Accepted(states, counts, sampled)


def expect_same(actual: Accepted, expected: Accepted) -> None:
    np.testing.assert_array_equal(actual.states, expected.states)
    np.testing.assert_array_equal(actual.counts, expected.counts)
    np.testing.assert_array_equal(actual.sampled_ids, expected.sampled_ids)


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("num_sequences", [1, 5, 64, 256])
def test_acceptance(device, num_sequences, most):
    rng = shapes.generator("acceptance", num_sequences, most)
    numbers = set()
    for _ in range(10):
        problem = random_acceptance(rng, num_sequences, most)
        actual, expected = accept(device, *problem), accepted_by_the_model(*problem)
        expect_same(actual, expected)
        np.testing.assert_array_equal(actual.sampled_ids, problem[0]["sampled_ids"])
        numbers |= set(expected.states["num_accepted"].tolist())
    assert num_sequences < 64 or numbers == {-7, *range(most)}


@pytest.mark.parametrize("rate", [-1.0, 0.0, 0.3, 0.84, 1.0])
@pytest.mark.parametrize("num_sequences", [1, 5, 64, 200])
def test_forced_acceptance(device, num_sequences, rate):
    rng = shapes.generator("forced acceptance", num_sequences)
    num_forced = 0
    for most in (1, 2, 4, 8):
        arrays, counts, states = random_acceptance(rng, num_sequences, most)
        seed = rng.integers(2**64, size=len(arrays["row_offset"]), dtype=np.uint64)
        actual = accept(device, arrays, counts, states, rate, seed)
        expect_same(actual, accepted_by_the_model(arrays, counts, states, rate, seed))
        num_forced += np.count_nonzero(actual.sampled_ids != arrays["sampled_ids"])
    assert (num_forced > 0) == (rate >= 0) or num_sequences == 1


@pytest.mark.parametrize(
    ("length", "most"), [(1.0, 1), (1.0, 3), (1.84, 1), (1.84, 3), (2.5, 3), (1.84, 7), (6.1, 7)]
)
def test_the_mean_of_forced_acceptance(device, length, most):
    """Of requests with one seed, too."""
    num_sequences, vocab = 4096, 512
    rng = shapes.generator("mean acceptance", most)
    rows = rows_of(rng, np.full(num_sequences, most + 1))
    arrays = {
        "row_offset": rows.offsets,
        "input_ids": rng.integers(0, 2, len(rows.offsets)),
        "sampled_ids": rng.integers(0, 2, len(rows.offsets)),
        "position": rng.integers(1, 4000, num_sequences)[rows.sequences] + rows.offsets,
        "state_row": rows.sequences,
        "count_row": np.full(len(rows.offsets), -1),
    }
    counts, states = np.zeros((num_sequences, vocab), np.uint32), np.zeros(num_sequences, STATE)
    seed = np.zeros(len(rows.offsets), np.uint64)
    accepted = accept(device, arrays, counts, states, rate_of(length, most), seed)
    lengths = 1 + accepted.states["num_accepted"]
    assert abs(lengths.mean() - length) <= 4 * lengths.std() / num_sequences**0.5


def test_the_state_is_the_header_s():
    assert ctypes.sizeof(structs()["glm_sequence_state"]) == STATE.itemsize


@pytest.mark.parametrize("name", PENALTIES)
def test_accepted_drafts_draw_what_single_rows_draw(device, name):
    """Drafts that are the tokens of single rows are accepted, with the same bits and counts."""
    most, num_sequences = 4, 12
    logits, _, _, _, counts = problem(name, VOCABS[1], num_sequences, most, most)
    logits = logits.reshape(num_sequences, most, -1)
    controls = [Controls(seed=sequence, **PENALTIES[name]) for sequence in range(num_sequences)]
    table_row = np.arange(num_sequences)
    states = np.zeros(num_sequences, STATE)
    single, advanced = [], counts
    for offset in range(most):
        placed = [replace(each, position=50 + offset) for each in controls]
        drawn = draw(device, logits[:, offset], placed, 3, advanced, table_row)
        arrays = rows_of_one(table_row, drawn.token_ids, 50 + offset)
        advanced = accept(device, arrays, advanced, states).counts
        single.append(drawn)
    tokens = np.stack([drawn.token_ids for drawn in single], axis=1)
    drafts = np.concatenate([np.zeros((num_sequences, 1), np.int32), tokens[:, :-1]], axis=1)
    together, arrays = rows_together(device, logits, controls, drafts, counts)
    np.testing.assert_array_equal(together.token_ids, tokens.ravel())
    for field in ("logprob", "top_ids", "top_logprobs"):
        expected = np.stack([getattr(drawn, field) for drawn in single], axis=1)
        actual = getattr(together, field)
        np.testing.assert_array_equal(actual, expected.reshape(actual.shape))
    accepted = accept(device, arrays, counts, states)
    np.testing.assert_array_equal(accepted.counts, advanced)
    np.testing.assert_array_equal(accepted.states["num_accepted"], most - 1)
    np.testing.assert_array_equal(accepted.states["length"], 50 + most)
    np.testing.assert_array_equal(accepted.states["last_id"], tokens[:, -1])


def rows_of_one(table_row: np.ndarray, sampled: np.ndarray, position: int) -> dict:
    """A row a sequence, all counted."""
    zeros = np.zeros_like(table_row)
    return {
        "row_offset": zeros,
        "input_ids": zeros,
        "sampled_ids": sampled,
        "position": zeros + position,
        "state_row": table_row,
        "count_row": table_row,
    }


def rows_together(device, logits, controls, drafts: np.ndarray, counts: np.ndarray):
    """(all rows of all sequences drawn in one call, the arrays that accept them)."""
    sequences, offsets = np.divmod(np.arange(drafts.size), drafts.shape[1])
    placed = [
        replace(controls[each], position=50 + j) for each, j in zip(sequences, offsets, strict=True)
    ]
    drawn = draw(
        device,
        logits.reshape(drafts.size, -1),
        placed,
        3,
        counts,
        sequences,
        row_offset=offsets,
        input_ids=drafts.ravel(),
    )
    arrays = rows_of_one(sequences, drawn.token_ids, 50)
    arrays |= {"row_offset": offsets, "input_ids": drafts.ravel(), "position": 50 + offsets}
    return drawn, arrays

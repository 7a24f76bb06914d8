"""The inputs of decode rows from the state that the step before left."""

from collections.abc import Sequence

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.paging import Heads, Norms, PagedCache
from glm_engine.verify.steps import OUTPUTS, STATE, UPLOADED, Step, accept, begin, random_step
from tests import shapes


def begun_by_the_model(step: Step, row: int) -> Sequence[int]:
    """(token id, position, slot, context length, noise position)."""
    if step.rows["source_rows"][row] < 0:
        return (UPLOADED,) * len(OUTPUTS)
    table_row, offset = step.rows["table_row"][row], step.rows["row_offset"][row]
    length, last_id, num_accepted, draft_id = step.states[table_row]
    position, end = length - 1 + offset, step.rows["position_limit"][row]
    token = last_id if offset == 0 else step.continuation[row, num_accepted]
    if offset > 0 and token < 0:
        token = draft_id
    token = max(token, 0)
    if position >= end:
        return token, end - 1, -1, end, end
    page, place = divmod(position, step.page_size)
    slot = step.page_table[table_row, page] * step.page_size + place
    return token, position, slot, position + 1, position + 1


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("page_size", [1, 16, 256])
@pytest.mark.parametrize("num_sequences", [1, 17, 256])
def test_rows_follow_the_states(device, num_sequences, page_size, most):
    rng = shapes.generator("begin step", num_sequences, page_size, most)
    for _ in range(5):
        step = random_step(rng, num_sequences, most, page_size)
        actual = begin(device, step)
        expected = [begun_by_the_model(step, row) for row in range(len(step.rows["table_row"]))]
        for name, column in zip(OUTPUTS, zip(*expected, strict=True), strict=True):
            np.testing.assert_array_equal(actual[name], column, name)


def teacher_rows(text: np.ndarray, num_rows: int, state) -> np.ndarray:
    """continuation [num_rows][num_rows]: the text's ids at the rows after any acceptance."""
    before = state["length"] - 1 - state["num_accepted"]
    places = before + np.arange(num_rows)[:, None] + np.arange(num_rows)[None]
    return text[np.minimum(places, len(text) - 1)]


@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_steps_follow_each_other_to_the_last_position(device, num_rows):
    """A text that the samples follow for a while: each step goes on behind the last token that
    came, and ends at the limit, whatever the rows past it were given."""
    rng = shapes.generator("steps", num_rows)
    limit, page_size = 50, 16
    text = rng.integers(0, 9, limit + 2 * num_rows)
    state = np.array([(3, text[2], 0, -1)], STATE)
    tokens, counts = text[:3].tolist(), np.zeros((1, 9), np.uint32)
    offsets, zeros = np.arange(num_rows), np.zeros(num_rows, np.int32)
    rows = {
        "table_row": zeros,
        "row_offset": offsets,
        "source_rows": zeros,
        "position_limit": zeros + limit,
    }
    num_drafts_taken = 0
    while len(tokens) <= limit:
        step = Step(
            rows, np.arange(4)[None], page_size, state, teacher_rows(text, num_rows, state[0])
        )
        begun = begin(device, step)
        np.testing.assert_array_equal(
            begun["positions"], np.minimum(len(tokens) - 1 + offsets, limit - 1)
        )
        assert begun["token_ids"][0] == tokens[-1]
        sampled = np.where(
            rng.random(num_rows) < 0.8, text[begun["positions"] + 1], rng.integers(0, 9, num_rows)
        )
        arrays = {
            "row_offset": offsets,
            "input_ids": begun["token_ids"],
            "sampled_ids": sampled,
            "position": begun["position"],
            "state_row": zeros,
            "count_row": zeros,
        }
        after = accept(device, arrays, counts, state)
        state, counts = after.states, after.counts
        num_accepted = state["num_accepted"][0]
        drafts = begun["token_ids"][1 : 1 + num_accepted].tolist()
        assert drafts == sampled[:num_accepted].tolist()
        num_drafts_taken += num_accepted
        tokens += [*drafts, int(sampled[num_accepted])]
        assert state["length"][0] == len(tokens) <= limit + 1
    assert (num_drafts_taken > 5) == (num_rows > 1)
    np.testing.assert_array_equal(counts[0], np.bincount(tokens[3:], minlength=9))


def test_rows_without_a_slot_are_not_stored(device):
    heads = Heads(2, 1, 64)
    cache = PagedCache(device, heads, 2, 3, 16)
    tables = op.rope_tables(device, 1e6, 4, 16)
    qkv = shapes.generator("no slot").standard_normal((3, heads.qkv_width))
    norms, positions = Norms(None, None), [7, 8, 8]
    before = cache.contents()
    query = cache.store(qkv, positions, [-1, -1, -1], norms, tables, 4, 1)
    np.testing.assert_array_equal(cache.contents(), before)
    stored = cache.store(qkv, positions, [7, 8, 24], norms, tables, 4, 1)
    np.testing.assert_array_equal(query, stored)
    after = cache.contents()
    mixed = cache.store(qkv, positions, [-1, 8, -1], norms, tables, 4, 1)
    np.testing.assert_array_equal(mixed, query)
    np.testing.assert_array_equal(cache.contents(), after)

"""From a step's sampled ids to the rows of the prediction layer, and from its ids to the states."""

import numpy as np
import pytest

from glm_engine.verify.device import BackendError
from glm_engine.verify.drafts import (
    OF_DRAFTS,
    PER_SAMPLE,
    PER_TOKEN,
    DraftRows,
    begin_drafts,
    keep_drafts,
    random_rows,
)
from glm_engine.verify.steps import STATE, Step, accept, begin
from tests import shapes


@pytest.mark.parametrize("most", [1, 2, 4])
@pytest.mark.parametrize("num_sequences", [0, 1, 13, 65, 256])
def test_rows_follow_what_was_sampled(device, num_sequences, most):
    rng = shapes.generator("begin drafts", num_sequences, most)
    for _ in range(5):
        rows = random_rows(rng, num_sequences, most)
        actual = begin_drafts(device, rows)
        np.testing.assert_array_equal(actual["token_ids"], rows.token_ids)
        expected = np.array(rows.drafts, np.int32).reshape(-1, len(OF_DRAFTS))
        for column, name in enumerate(OF_DRAFTS):
            np.testing.assert_array_equal(actual[name], expected[:, column], name)


@pytest.mark.parametrize("num_sequences", [0, 1, 13, 65, 256])
def test_a_state_keeps_its_draft_alone(device, num_sequences):
    rng = shapes.generator("keep drafts", num_sequences)
    rows = random_rows(rng, num_sequences, 3)
    draft_ids = rng.integers(-1, 1000, len(rows.draft_rows))
    expected = rows.states.copy()
    for first, draft_id in zip(rows.draft_rows, draft_ids, strict=True):
        expected["draft_id"][rows.state_row[first]] = draft_id
    np.testing.assert_array_equal(keep_drafts(device, rows, draft_ids), expected)


def test_a_prompt_without_a_sampled_row(device):
    rows = DraftRows(np.zeros(1, STATE))
    for position in range(5):
        rows.add_token(position, 7 * position)
    actual = begin_drafts(device, rows, sampled_ids=None, draft_rows=None, rows=None)
    np.testing.assert_array_equal(actual["token_ids"], [0, 7, 14, 21, 28])


def one_sequence(states: np.ndarray, positions, sampled) -> DraftRows:
    rows = DraftRows(states)
    for position, token in zip(positions, sampled, strict=True):
        rows.add_sampled(int(position), 0, int(token))
    rows.draft_rows.append(0)
    return rows


def test_a_kept_draft_is_the_second_row_of_the_next_step(device):
    """Steps of one sequence, whose drafts are often right, without the host between them."""
    rng = shapes.generator("kept drafts")
    limit, page_size = 60, 16
    text = rng.integers(0, 9, limit + 3)
    zeros, offsets = np.zeros(2, np.int32), np.arange(2)
    step_rows = {
        "table_row": zeros,
        "row_offset": offsets,
        "source_rows": zeros,
        "position_limit": zeros + limit,
    }
    states, tokens = np.array([(1, text[0], 0, -1)], STATE), [int(text[0])]
    draft, num_accepted = -1, 0
    while len(tokens) < limit:
        step = Step(step_rows, np.arange(4)[None], page_size, states, np.full((2, 2), -1))
        begun = begin(device, step)
        assert begun["token_ids"].tolist() == [tokens[-1], max(draft, 0)]
        sampled = text[begun["positions"] + 1]
        arrays = {
            "row_offset": offsets,
            "input_ids": begun["token_ids"],
            "sampled_ids": sampled,
            "position": begun["position"],
            "state_row": zeros,
            "count_row": zeros - 1,
        }
        states = accept(device, arrays, np.zeros((1, 9), np.uint32), states).states
        assert states["draft_id"][0] == -1
        accepted = states["num_accepted"][0]
        num_accepted += accepted
        tokens += sampled[: 1 + accepted].tolist()
        assert tokens == text[: len(tokens)].tolist()
        rows = one_sequence(states, begun["positions"], sampled)
        drafts = begin_drafts(device, rows)
        assert drafts["rows"].tolist() == [accepted]
        assert drafts["position"].tolist() == [len(tokens)]
        assert drafts["context_length"].tolist() == [len(tokens) - 1]
        draft = int(rng.choice([text[len(tokens)], rng.integers(-1, 9)], p=[0.7, 0.3]))
        states = keep_drafts(device, rows, np.array([draft]))
    assert num_accepted > 5


def refused(call, text: str, *given, **changes) -> None:
    with pytest.raises(BackendError, match=text):
        call(*given, **changes)


def test_arguments_that_do_not_fit(device):
    rows = one_sequence(np.array([(6, 3, 1, -1)], STATE), [3, 4], [8, 9])
    begin_drafts(device, rows)
    for name in ("num_tokens", "num_sample_rows", "num_drafts"):
        text = f"begin_drafts: {name}: expected 0 to [0-9]+, got -1"
        refused(begin_drafts, text, device, rows, **{name: -1})
    refused(begin_drafts, "num_drafts: expected 0 to 2, got 3", device, rows, num_drafts=3)
    arrays = (*PER_TOKEN, *PER_SAMPLE, "sampled_ids", "draft_rows", "states", "token_ids")
    for name in (*arrays, *OF_DRAFTS):
        text = f"begin_drafts: {name}: expected a pointer, got null"
        refused(begin_drafts, text, device, rows, **{name: None})
    refused(keep_drafts, "num_drafts: expected 0 to", device, rows, [4], num_drafts=-1)
    for name in ("state_row", "draft_rows", "draft_ids", "states"):
        text = f"keep_drafts: {name}: expected a pointer, got null"
        refused(keep_drafts, text, device, rows, [4], **{name: None})


def test_indexes_outside_their_arrays(device):
    if not device.facts.checks_indexes:
        pytest.skip("this device does not check indexes in device memory")

    def sound() -> DraftRows:
        return one_sequence(np.array([(6, 3, 1, -1)], STATE), [3, 4], [8, 9])

    for name, index, value, text in (
        ("next_ids", 1, -3, r"next_ids\[1\]: expected -2 to 2147483647, got -3"),
        ("positions", 0, -1, r"positions\[0\]: expected 0 to 2147483646, got -1"),
        ("draft_rows", 0, 2, r"draft_rows\[0\]: expected 0 to 1, got 2"),
        ("state_row", 0, -1, "state_row of a draft row: expected 0 to 0, got -1"),
        ("logit_rows", 1, 2, "logit_rows of a draft row: expected 0 to 1, got 2"),
    ):
        rows = sound()
        getattr(rows, name)[index] = value
        refused(begin_drafts, text, device, rows)
    rows = sound()
    rows.states["num_accepted"] = 2
    refused(begin_drafts, "num_accepted: expected 0 to 1, got 2", device, rows)
    rows = sound()
    rows.state_row[0] = 1
    refused(keep_drafts, "state_row of a draft row: expected 0 to 0, got 1", device, rows, [4])

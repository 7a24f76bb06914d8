"""From a step's sampled ids to the rows of the prediction layer, and from its ids to the states."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from glm_engine.verify.device import BackendError
from glm_engine.verify.steps import STATE, Step, accept, begin
from tests import shapes

PER_TOKEN = ("next_ids", "positions")
PER_SAMPLE = ("logit_rows", "state_row")
OF_DRAFTS = ("rows", "table_row", "context_length", "position")
MISSING = -1


@dataclass
class Rows:
    """Arrays by their names in glm_begin_drafts_args, and what is expected of each sequence."""

    states: np.ndarray
    next_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    logit_rows: list[int] = field(default_factory=list)
    state_row: list[int] = field(default_factory=list)
    sampled_ids: list[int] = field(default_factory=list)
    draft_rows: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    drafts: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add_token(self, position: int, next_id: int) -> None:
        self.positions.append(position)
        self.next_ids.append(next_id)
        self.token_ids.append(next_id)

    def add_sampled(self, position: int, state_row: int, sampled: int) -> None:
        self.add_token(position, -1 - len(self.sampled_ids))
        self.token_ids[-1] = max(sampled, 0)
        self.logit_rows.append(len(self.positions) - 1)
        self.state_row.append(state_row)
        self.sampled_ids.append(sampled)

    def array(self, name: str) -> np.ndarray:
        return np.array(getattr(self, name), np.int32)


def add_sequence(rows: Rows, rng: np.random.Generator, table_row: int, most: int) -> None:
    """A prompt's part, with or without its end, or a decode row with drafts; some have a draft."""
    start = int(rng.integers(0, 500))
    num_prompt = int(rng.integers(0, 6)) * int(rng.random() < 0.5)
    for i in range(num_prompt):
        rows.add_token(start + i, int(rng.integers(0, 1000)))
    if num_prompt > 0 and rng.random() < 0.3:
        return
    num_sampled = 1 if num_prompt else int(rng.integers(1, most + 1))
    first, begin_row = len(rows.sampled_ids), len(rows.positions)
    for offset in range(num_sampled):
        position = start + num_prompt + offset
        rows.add_sampled(position, table_row, int(rng.integers(-1, 1000)))
    if rng.random() < 0.2:
        rows.state_row[first] = MISSING
        return
    accepted = int(rng.integers(0, num_sampled))
    last = start + num_prompt + accepted
    rows.states[table_row] = (last + 2, rows.sampled_ids[first + accepted], accepted, -1)
    if rng.random() < 0.8:
        rows.draft_rows.append(first)
        rows.drafts.append((begin_row + accepted, table_row, last + 1, last + 2))


def random_rows(rng: np.random.Generator, num_sequences: int, most: int) -> Rows:
    num_table_rows = num_sequences + 3
    rows = Rows(np.full(num_table_rows, np.array((-7, -7, -7, -7), STATE)))
    for table_row in rng.permutation(num_table_rows)[:num_sequences]:
        add_sequence(rows, rng, int(table_row), most)
    return rows


def begin_drafts(device, given: Rows, **changes) -> dict[str, np.ndarray]:
    num_tokens, num_drafts = len(given.positions), len(given.draft_rows)
    names = (*PER_TOKEN, *PER_SAMPLE, "sampled_ids", "draft_rows")
    outputs = {name: device.output((num_drafts,), np.int32) for name in OF_DRAFTS}
    outputs["token_ids"] = device.output((num_tokens,), np.int32)
    fields = {
        "num_tokens": num_tokens,
        "num_sample_rows": len(given.sampled_ids),
        "num_drafts": num_drafts,
        "num_table_rows": len(given.states),
        "states": device.place(given.states),
    }
    fields |= {name: device.place(given.array(name)) for name in names}
    fields |= {name: output.block for name, output in outputs.items()}
    device.run("begin_drafts", **(fields | changes))
    return {name: output.get() for name, output in outputs.items()}


def keep_drafts(device, given: Rows, kept_ids: np.ndarray, **changes) -> np.ndarray:
    states = device.place(given.states)
    fields = {
        "num_drafts": len(given.draft_rows),
        "num_table_rows": len(given.states),
        "state_row": device.place(given.array("state_row")),
        "draft_rows": device.place(given.array("draft_rows")),
        "draft_ids": device.place(np.asarray(kept_ids, np.int32)),
        "states": states,
    }
    device.run("keep_drafts", **(fields | changes))
    return device.download(states, given.states.shape, STATE)


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
    rows = Rows(np.zeros(1, STATE))
    for position in range(5):
        rows.add_token(position, 7 * position)
    actual = begin_drafts(device, rows, sampled_ids=None, draft_rows=None, rows=None)
    np.testing.assert_array_equal(actual["token_ids"], [0, 7, 14, 21, 28])


def one_sequence(states: np.ndarray, positions, sampled) -> Rows:
    rows = Rows(states)
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

    def sound() -> Rows:
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

"""Rows of the prediction layer behind a step's samples, as random sequences leave them."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glm_engine.verify.device import Device
from glm_engine.verify.steps import STATE

PER_TOKEN = ("next_ids", "positions")
PER_SAMPLE = ("logit_rows", "state_row")
OF_DRAFTS = ("rows", "table_row", "context_length", "position")
MISSING = -1


@dataclass
class DraftRows:
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


def add_sequence(rows: DraftRows, rng: np.random.Generator, table_row: int, most: int) -> None:
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


def random_rows(rng: np.random.Generator, num_sequences: int, most: int) -> DraftRows:
    num_table_rows = num_sequences + 3
    rows = DraftRows(np.full(num_table_rows, np.array((-7, -7, -7, -7), STATE)))
    for table_row in rng.permutation(num_table_rows)[:num_sequences]:
        add_sequence(rows, rng, int(table_row), most)
    return rows


def begin_drafts(device: Device, given: DraftRows, **changes: Any) -> dict[str, np.ndarray]:
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


def keep_drafts(
    device: Device, given: DraftRows, kept_ids: np.ndarray, **changes: Any
) -> np.ndarray:
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

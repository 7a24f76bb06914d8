"""Rows of sequences from step to step: begin_step and accept on a device, and random rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glm_engine.verify.device import Device
from glm_engine.verify.header import constants

PROMPT = constants()["GLM_TOKEN_IN_PROMPT"]
STATE = np.dtype([("length", "i4"), ("last_id", "i4"), ("num_accepted", "i4"), ("draft_id", "i4")])
OUTPUTS = ("token_ids", "positions", "slots", "context_length", "position")
UPLOADED = -5
FEW_IDS = 5
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Step:
    """Arrays of the rows by their names in glm_begin_step_args, and tables of sequences."""

    rows: Arrays
    page_table: np.ndarray
    page_size: int
    states: np.ndarray
    continuation: np.ndarray


def begin(device: Device, step: Step) -> Arrays:
    num_rows = len(step.rows["table_row"])
    outputs = {name: device.place(np.full(num_rows, UPLOADED, np.int32)) for name in OUTPUTS}
    device.run(
        "begin_step",
        num_rows=num_rows,
        num_table_rows=len(step.page_table),
        page_size=step.page_size,
        page_table_stride=step.page_table.shape[1],
        page_table=device.place(step.page_table.astype(np.int32)),
        states=device.place(step.states),
        continuation=device.place(step.continuation.astype(np.int32)),
        continuation_stride=step.continuation.shape[1],
        **{name: device.place(np.asarray(each, np.int32)) for name, each in step.rows.items()},
        **outputs,
    )
    shape = (num_rows,)
    return {name: device.download(each, shape, np.int32) for name, each in outputs.items()}


def random_step(rng: np.random.Generator, num_sequences: int, most: int, page_size: int) -> Step:
    lengths = rng.integers(1, most + 1, num_sequences)
    offsets = np.concatenate([np.arange(length) for length in lengths])
    sequences = np.repeat(np.arange(num_sequences), lengths)
    num_table_rows, num_pages = num_sequences + 3, 6
    states = np.zeros(num_table_rows, STATE)
    states["length"] = rng.integers(1, num_pages * page_size - most, num_table_rows)
    states["last_id"] = rng.integers(-1, 1000, num_table_rows)
    states["num_accepted"] = rng.integers(0, most, num_table_rows)
    states["draft_id"] = rng.integers(-1, 3, num_table_rows)
    table_row = rng.permutation(num_table_rows)[:num_sequences][sequences]
    rows = {
        "table_row": table_row,
        "row_offset": offsets,
        "source_rows": rng.integers(-1, 2, num_sequences)[sequences],
        "position_limit": states["length"][table_row]
        + rng.integers(0, most + 1, num_sequences)[sequences],
    }
    pages = rng.permutation(num_table_rows * num_pages).reshape(num_table_rows, num_pages)
    continuation = rng.integers(-1, 3, (len(offsets), most))
    return Step(rows, pages, page_size, states, continuation)


@dataclass(frozen=True)
class Rows:
    """Rows of sequences, which share a row of counts."""

    offsets: np.ndarray
    sequences: np.ndarray
    input_ids: np.ndarray

    def drafts(self, row: int) -> np.ndarray:
        return self.input_ids[row + 1 - self.offsets[row] : row + 1]


def rows_of(rng: np.random.Generator, lengths: np.ndarray) -> Rows:
    """Drafts of a few ids, so that they repeat each other."""
    offsets = np.concatenate([np.arange(length) for length in lengths])
    sequences = np.repeat(np.arange(len(lengths)), lengths)
    return Rows(offsets, sequences, rng.integers(0, FEW_IDS, len(offsets)))


@dataclass(frozen=True)
class Accepted:
    states: np.ndarray
    counts: np.ndarray
    sampled_ids: np.ndarray


def accept(
    device: Device,
    arrays: Arrays,
    counts: np.ndarray,
    states: np.ndarray,
    rate: float = -1.0,
    seed: ArrayLike | None = None,
) -> Accepted:
    """The operation over arrays of rows by their names in glm_accept_args."""
    placed = {name: device.place(np.asarray(each, np.int32)) for name, each in arrays.items()}
    block, state_block = device.place(counts.astype(np.uint32)), device.place(states)
    device.run(
        "accept",
        num_rows=len(arrays["row_offset"]),
        vocab_size=counts.shape[1],
        num_table_rows=len(counts),
        acceptance_rate=rate,
        seed=None if seed is None else device.place(np.asarray(seed, np.uint64)),
        counts=block,
        states=state_block,
        **placed,
    )
    return Accepted(
        device.download(state_block, states.shape, STATE),
        device.download(block, counts.shape, np.uint32),
        device.download(placed["sampled_ids"], (len(arrays["row_offset"]),), np.int32),
    )


def random_acceptance(
    rng: np.random.Generator, num_sequences: int, most: int
) -> tuple[Arrays, np.ndarray, np.ndarray]:
    """(arrays of rows whose drafts are often right, counts, states)."""
    rows = rows_of(rng, rng.integers(1, most + 1, num_sequences))
    num_rows, num_table_rows = len(rows.offsets), num_sequences + 7
    sampled = rng.integers(-1, 3, num_rows)
    is_right = rng.random(num_rows) < 0.7
    ids = np.where(is_right, np.roll(sampled, 1), rng.integers(0, 3, num_rows))
    table_row = rng.permutation(num_table_rows)[:num_sequences][rows.sequences]
    is_lost = rng.random(num_rows) < 0.1
    is_counted = rng.random(num_sequences)[rows.sequences] < 0.6
    arrays = {
        "row_offset": rows.offsets,
        "input_ids": np.maximum(ids, 0),
        "sampled_ids": sampled,
        "position": rng.integers(1, 1000, num_sequences)[rows.sequences] + rows.offsets,
        "state_row": np.where(is_lost, -1, table_row),
        "count_row": np.where(is_lost | ~is_counted, -1, table_row),
    }
    counts = rng.integers(5, size=(num_table_rows, 13), dtype=np.uint32)
    counts[:, ::3] |= np.uint32(PROMPT)
    states = np.full(num_table_rows, np.array((-7, -7, -7, -7), STATE))
    return arrays, counts, states

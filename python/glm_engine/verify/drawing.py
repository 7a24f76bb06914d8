"""Sampling on a device: rows of controls in, drawn tokens and log-probabilities out."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from glm_engine.verify.device import Device
from glm_engine.verify.header import constants

MAX_LOGPROBS = constants()["GLM_MAX_LOGPROBS"]
FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


@dataclass(frozen=True)
class Controls:
    """What one row asks for; the defaults switch each control off."""

    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    position: int = 0
    biases: Mapping[int, float] = field(default_factory=dict)
    allowed: np.ndarray | None = None


@dataclass(frozen=True)
class Drawn:
    token_ids: np.ndarray
    is_finite: np.ndarray
    logprob: np.ndarray
    top_ids: np.ndarray
    top_logprobs: np.ndarray
    counts: np.ndarray | None


def packed(allowed: np.ndarray) -> np.ndarray:
    """bool [vocab] → uint32 words, bit t % 32 of word t // 32."""
    padded = np.zeros(-(-len(allowed) // 32) * 32, bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.uint32)


def column(
    device: Device, controls: Sequence[Controls], name: str, dtype: DTypeLike
) -> ctypes.c_void_p:
    return device.place(np.array([getattr(each, name) for each in controls], dtype))


def bias_fields(device: Device, controls: Sequence[Controls]) -> dict[str, Any]:
    borders = np.cumsum([0, *(len(each.biases) for each in controls)]).astype(np.int32)
    pairs = [pair for each in controls for pair in each.biases.items()]
    return {
        "num_biases": len(pairs),
        "bias_begin": device.place(borders[:-1]),
        "bias_end": device.place(borders[1:]),
        "bias_tokens": device.place(np.array([token for token, _ in pairs], np.int32)),
        "bias_values": device.place(np.array([value for _, value in pairs], np.float32)),
    }


def mask_fields(device: Device, controls: Sequence[Controls]) -> dict[str, Any]:
    masks = [packed(each.allowed) for each in controls if each.allowed is not None]
    used = np.cumsum([each.allowed is not None for each in controls])
    row = [-1 if each.allowed is None else used[r] - 1 for r, each in enumerate(controls)]
    return {
        "num_masks": len(masks),
        "masks": device.place(np.array(masks, np.uint32)) if masks else None,
        "mask_row": device.place(np.array(row, np.int32)),
    }


def draw(
    device: Device,
    logits: np.ndarray,
    controls: Sequence[Controls],
    num_logprobs: ArrayLike = -1,
    counts: np.ndarray | None = None,
    count_row: ArrayLike = -1,
    forced_token: ArrayLike = -1,
    row_offset: ArrayLike = 0,
    input_ids: ArrayLike = -1,
    first_row: int = 0,
    biases: dict[str, Any] | None = None,
) -> Drawn:
    """One draw for each row of logits [rows, vocab]; `input_ids` are those of rows of a step, of
    which the drawn ones begin at `first_row`; `biases` are fields in place of the controls'."""
    num_rows, vocab_size = logits.shape
    wanted, row, forced, offset = (
        np.broadcast_to(np.asarray(each, np.int32), num_rows).copy()
        for each in (num_logprobs, count_row, forced_token, row_offset)
    )
    ids = np.broadcast_to(np.asarray(input_ids, np.int32), first_row + num_rows)
    placed_ids = device.place(ids).value or 0
    placed = None if counts is None else device.place(counts.astype(np.uint32))
    shapes: dict[str, tuple[tuple[int, ...], type[np.generic]]] = {
        "token_ids": ((num_rows,), np.int32),
        "is_finite": ((num_rows,), np.int32),
        "logprob": ((num_rows,), np.float32),
        "top_ids": ((num_rows, MAX_LOGPROBS), np.int32),
        "top_logprobs": ((num_rows, MAX_LOGPROBS), np.float32),
    }
    outputs = {name: device.output(*shape) for name, shape in shapes.items()}
    device.run(
        "sample",
        num_rows=num_rows,
        vocab_size=vocab_size,
        num_count_rows=0 if counts is None else len(counts),
        logits=device.place(np.asarray(logits, np.float32)),
        **{name: column(device, controls, name, np.float32) for name in FLOATS},
        top_k=column(device, controls, "top_k", np.int32),
        seed=column(device, controls, "seed", np.uint64),
        position=column(device, controls, "position", np.int32),
        row_offset=device.place(offset),
        input_ids=placed_ids + 4 * first_row,
        count_row=device.place(row),
        num_logprobs=device.place(wanted),
        forced_token=device.place(forced),
        counts=placed,
        **(bias_fields(device, controls) if biases is None else biases),
        **mask_fields(device, controls),
        **{name: output.block for name, output in outputs.items()},
    )
    after = None
    if counts is not None and placed is not None:
        after = device.download(placed, counts.shape, np.uint32)
    return Drawn(counts=after, **{name: output.get() for name, output in outputs.items()})


def varied_controls(num_rows: int) -> list[Controls]:
    """Rows that are greedy or drawn, with and without top_k, top_p and min_p, in every mixture."""
    return [
        Controls(
            seed=row,
            temperature=(0.0, 0.7, 1.3)[row % 3],
            top_k=(0, 40)[row % 2],
            top_p=(1.0, 0.9)[row // 2 % 2],
            min_p=(0.0, 0.02)[row // 4 % 2],
        )
        for row in range(num_rows)
    ]

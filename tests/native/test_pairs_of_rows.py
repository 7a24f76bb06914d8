"""The rows of a sequence, which attention may read together, have the bits of each row alone."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from glm_engine.core.float8 import encode_bf16
from glm_engine.verify import operations as op
from glm_engine.verify.device import DTYPES, FP8, Device
from glm_engine.verify.header import structs
from glm_engine.verify.paging import (
    NO_SCALES,
    Heads,
    HeadScales,
    PagedCache,
)
from tests import shapes
from tests.devices import device_kind
from tests.native.codes import BLOCK_TOKENS, HALF_BYTES

PAGE = 16
SPLIT = 256
NUM_POOLED = 300
HEADS = {
    "12 heads": Heads(96, 8, 128),
    "9 of 64": Heads(72, 8, 64),
    "5 of 100": Heads(40, 8, 100),
    "16 heads": Heads(128, 8, 128),
}


@dataclass(frozen=True)
class Run:
    """`count` rows of a sequence, of which the first reads `length` positions."""

    length: int
    count: int


PADDED = Run(0, 1)


def every_place_of(first: int) -> list[Run]:
    """Pairs whose first row ends at each place of a split."""
    return [Run(first + place, 2) for place in range(1, SPLIT + 1)]


STEPS = {
    "two rows, each place in a split": every_place_of(0),
    "two rows, each place in a third split": every_place_of(2 * SPLIT)[::2],
    "two rows of long contexts": [Run(4090 - 3 * index, 2) for index in range(12)],
    "three rows": [Run(250 + index, 3) for index in range(60)],
    "four rows": [Run(500 + index, 4) for index in range(40)],
    "eight rows": [Run(1020 - index, 8) for index in range(20)],
    "pairs that a group of 32 rows parts": [Run(777, 1), *(Run(1300 + i, 2) for i in range(40))],
    "pairs among rows alone": [Run(1 + 37 * i, 1 + i % 2) for i in range(70)],
    "uneven": [*(Run(4000, 2), Run(1, 2), Run(17, 1), Run(2047, 2), Run(3, 8), Run(3900, 1)) * 4],
    "padded": [Run(2600, 2), *(Run(31 * i, 2) for i in range(1, 40)), Run(1, 1), *[PADDED] * 11],
    "too few for pairs": [Run(600, 2), Run(4000, 2), Run(1, 1), Run(31, 4)],
}
EVERY_CASE = list(product(STEPS, HEADS))
OVER_CODES = (
    EVERY_CASE
    if device_kind() == "cuda"
    else [("three rows", "12 heads"), ("uneven", "5 of 100"), ("too few for pairs", "9 of 64")]
)
CASES = [(*case, None) for case in EVERY_CASE] + [(*case, FP8) for case in OVER_CODES]


class Pages:
    """Random keys and values of the sequences, and NaN behind the last position of each."""

    def __init__(self, device: Device, heads: Heads, runs: list[Run], dtype: int | None):
        self.device, self.heads, self.runs = device, heads, runs
        page = device.page_size(PAGE)
        rng = shapes.generator("pairs of rows", len(runs), heads.num_heads)
        scales = NO_SCALES if dtype is None else drawn_scales(rng, heads)
        self.cache = PagedCache(device, heads, 1, NUM_POOLED + len(runs), page, dtype, scales)
        lasts = [run.length + run.count - 1 for run in runs]
        stride = max(-(-last // page) for last in lasts)
        self.table = rng.integers(0, NUM_POOLED, (len(runs), stride), np.int32)
        for number, last in enumerate(lasts):
            self.table[number, max(last - 1, 0) // page] = NUM_POOLED + number
        stored = drawn_pages(rng, self.cache, device, dtype)
        if device.facts.packs_tiles:
            clear_behind(stored, [last % page for last in lasts])
        self.cache.fill(stored)
        rows = sum(run.count for run in runs)
        width = heads.num_heads * heads.head_dim
        self.query = device.activation(rng.standard_normal((rows, width)))
        self.shape = (rows, width)

    def lengths(self) -> list[int]:
        return [run.length + index for run in self.runs for index in range(run.count)]

    def place(self, values):
        return self.device.place(np.asarray(values, np.int32))

    def attended(self, rows_per_sequence: int) -> np.ndarray:
        output = op.activation_output(self.device, self.shape)
        rows = [number for number, run in enumerate(self.runs) for _ in range(run.count)]
        self.device.run(
            "attention",
            num_tokens=len(rows),
            segments=structs()["glm_segments"](
                num_segments=len(rows),
                num_decode_segments=len(rows),
                query_begin=self.place(range(len(rows) + 1)),
                context_length=self.place(self.lengths()),
                table_row=self.place(rows),
                page_table=self.place(self.table),
                page_table_stride=self.table.shape[1],
                num_table_rows=len(self.table),
                rows_per_sequence=rows_per_sequence,
            ),
            num_heads=self.heads.num_heads,
            scale=self.heads.head_dim**-0.5,
            query=self.query,
            cache=self.cache.pointer,
            output=output.block,
        )
        return op.activation_values(output)


def drawn_scales(rng: np.random.Generator, heads: Heads) -> HeadScales:
    key, value = 2 ** rng.uniform(-2, 1, (2, 1, heads.num_kv_heads))
    return HeadScales(key.astype(np.float32), value.astype(np.float32))


def drawn_pages(rng, cache: PagedCache, device: Device, dtype: int | None) -> np.ndarray:
    """Finite values in every slot."""
    shape = cache.contents().shape
    if dtype == FP8:
        return rng.integers(0, 0x70, shape, np.uint8) | rng.choice([0, 0x80], shape).astype(
            np.uint8
        )
    kind = DTYPES[device.info.default_kv_dtype]
    values = rng.standard_normal(int(np.prod(shape)) // np.dtype(kind).itemsize, np.float32)
    stored = values if kind == np.float32 else encode_bf16(values)
    return stored.view(np.uint8).reshape(shape).copy()


def clear_behind(stored: np.ndarray, num_kept: list[int]) -> None:
    """NaN in the slots of each sequence's last page behind the first `num_kept`, if any."""
    slots = stored.reshape(len(stored), -1, BLOCK_TOKENS, HALF_BYTES)
    for number, kept in enumerate(num_kept):
        if kept > 0:
            slots[NUM_POOLED + number, :, kept:] = 0xFF


@pytest.mark.parametrize(("step", "name", "dtype"), CASES)
def test_rows_read_together_have_the_bits_of_rows_alone(device, step, name, dtype):
    runs, heads = STEPS[step], HEADS[name]
    if PADDED in runs and not device.info.supports_graphs:
        pytest.skip("only steps from graphs are padded: --device-kind cuda runs it")
    pages = Pages(device, heads, runs, dtype)
    alone = pages.attended(1)
    assert np.all(np.isfinite(alone))
    together = pages.attended(max(run.count for run in runs))
    np.testing.assert_array_equal(together.view(np.uint32), alone.view(np.uint32))
    lengths = np.array(pages.lengths())
    assert np.all(np.any(alone != 0, axis=1) == (lengths > 0))

"""Several decode rows of one sequence in a step have the bits of one row after another, although
the step stores the tokens before a row right in front of the attention that reads them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8, Device
from glm_engine.verify.header import structs
from glm_engine.verify.paging import NO_SCALES, Heads, HeadScales, PagedCache
from tests import shapes
from tests.native.test_graphs import capture

CACHES = {"own": None, "fp8": FP8}
FIRST = [*range(16), *range(240, 273), *range(1021, 1025)]
ROWS = (1, 16, 17, 64, 256)
MOST_ROWS = max(ROWS)


@dataclass(frozen=True)
class Row:
    sequence: int
    position: int


class Sequences:
    """Sequences of FIRST[i % len(FIRST)] stored tokens and `num_new` more, whose slots hold NaN."""

    def __init__(self, device: Device, num_new: int, page_size: int, dtype: int | None):
        heads = Heads(12, 4, 128) if device.facts.packs_tiles else Heads(2, 1, 16)
        count = MOST_ROWS // num_new
        self.device, self.heads = device, heads
        self.first = [FIRST[number % len(FIRST)] for number in range(count)]
        needed = [-(-(first + num_new) // page_size) for first in self.first]
        rng = shapes.generator("rows of a sequence", num_new, page_size)
        pages = np.split(rng.permutation(sum(needed)), np.cumsum(needed)[:-1])
        self.table = np.zeros((count, max(needed)), np.int32)
        for row, own in zip(self.table, pages, strict=True):
            row[: len(own)] = own
        scales = NO_SCALES if dtype is None else head_scales(heads)
        self.cache = PagedCache(device, heads, 1, sum(needed), page_size, dtype, scales)
        self.qkv = [
            op.as_activation(device, rng.standard_normal((first + num_new, heads.qkv_width)))
            for first in self.first
        ]
        self.rows = [
            Row(number, first + index)
            for number, first in enumerate(self.first)
            for index in range(num_new)
        ]
        self.poisoned = self.store_history()

    def store_history(self) -> np.ndarray:
        """The pages with all tokens before the new ones, and NaN in every other slot."""
        self.cache.fill(np.full_like(self.cache.contents(), 0xFF))
        for number, first in enumerate(self.first):
            if first > 0:
                self.step([Row(number, position) for position in range(first)]).store()
        self.device.synchronise()
        return self.cache.contents()

    def step(self, rows: list[Row], rows_per_sequence: int = 1) -> "Step":
        return Step(self, rows, rows_per_sequence)

    def slots(self, rows: list[Row]) -> np.ndarray:
        size = self.cache.page_size
        pages = np.array([self.table[row.sequence, row.position // size] for row in rows])
        return pages * size + np.array([row.position % size for row in rows])


def head_scales(heads: Heads) -> HeadScales:
    rng = shapes.generator("rows of a sequence", "scales")
    key, value = 2 ** rng.uniform(-2, 1, (2, 1, heads.num_kv_heads))
    return HeadScales(key.astype(np.float32), value.astype(np.float32))


class Step:
    """Rows whose store and attention are queued one right behind the other."""

    def __init__(self, sequences: Sequences, rows: list[Row], rows_per_sequence: int):
        device, self.cache, heads = sequences.device, sequences.cache, sequences.heads
        self.device, self.count = device, len(rows)
        width = (len(rows), heads.num_heads * heads.head_dim)
        self.query, self.output = (op.activation_output(device, width) for _ in range(2))
        values = np.stack([sequences.qkv[row.sequence][row.position] for row in rows])
        self.qkv = device.activation(values)
        self.positions = self.place([row.position for row in rows])
        self.slots = self.place(sequences.slots(rows))
        self.segments = structs()["glm_segments"](
            num_segments=len(rows),
            num_decode_segments=len(rows),
            query_begin=self.place(range(len(rows) + 1)),
            context_length=self.place([row.position + 1 for row in rows]),
            table_row=self.place([row.sequence for row in rows]),
            page_table=self.place(sequences.table),
            page_table_stride=sequences.table.shape[1],
            num_table_rows=len(sequences.table),
            rows_per_sequence=rows_per_sequence,
        )

    def place(self, values):
        return self.device.place(np.asarray(values, np.int32))

    def store(self) -> None:
        self.device.run(
            "norm_rope_store",
            num_tokens=self.count,
            num_heads=self.cache.heads.num_heads,
            epsilon=1e-5,
            positions=self.positions,
            slots=self.slots,
            qkv=self.qkv,
            query=self.query.block,
            cache=self.cache.pointer,
        )

    def attend(self) -> None:
        self.device.run(
            "attention",
            num_tokens=self.count,
            segments=self.segments,
            num_heads=self.cache.heads.num_heads,
            scale=self.cache.heads.head_dim**-0.5,
            query=self.query.block,
            cache=self.cache.pointer,
            output=self.output.block,
        )

    def queue(self) -> None:
        self.store()
        self.attend()


def eagerly(step: Step) -> np.ndarray:
    step.queue()
    return op.activation_values(step.output)


def from_a_graph(step: Step) -> np.ndarray:
    graph = capture(step.device, step.queue)
    step.device.check(step.device.table.graph_replay(step.device.handle, graph))
    step.device.check(step.device.table.graph_free(step.device.handle, graph))
    return op.activation_values(step.output)


def one_after_another(sequences: Sequences, num_new: int) -> np.ndarray:
    """A step for the first new row of every sequence, one for the second row, and so on."""
    sequences.cache.fill(sequences.poisoned)
    steps = [eagerly(sequences.step(sequences.rows[index::num_new])) for index in range(num_new)]
    return np.stack(steps, axis=1).reshape(len(sequences.rows), -1)


def chunks(rows: list[Row], size: int) -> Iterator[list[Row]]:
    for begin in range(0, len(rows), size):
        yield rows[begin : begin + size]


def assert_same_bits(
    device: Device, num_new: int, page_size: int, dtype: int | None, run: Callable
) -> None:
    sequences = Sequences(device, num_new, device.page_size(page_size), dtype)
    expected = one_after_another(sequences, num_new)
    assert np.all(np.isfinite(expected))
    for count in ROWS:
        sequences.cache.fill(sequences.poisoned)
        rows = [run(sequences.step(part, num_new)) for part in chunks(sequences.rows, count)]
        actual = np.concatenate(rows)
        message = f"{count} rows a step"
        np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32), message)


@pytest.mark.parametrize("run", [eagerly, from_a_graph], ids=["eager", "graph"])
@pytest.mark.parametrize("dtype", CACHES.values(), ids=CACHES)
@pytest.mark.parametrize("page_size", [16, 256])
@pytest.mark.parametrize("num_new", [1, 2, 3, 4, 8])
def test_rows_of_a_step_are_rows_of_steps(device, num_new, page_size, dtype, run):
    if run is from_a_graph and not device.info.supports_graphs:
        pytest.skip("this device captures no graphs: --device-kind cuda runs it")
    assert_same_bits(device, num_new, page_size, dtype, run)


@pytest.mark.parametrize("dtype", CACHES.values(), ids=CACHES)
def test_rows_of_rejected_tokens_are_written_again(device, dtype):
    """The rows that a step stored and whose tokens were rejected are stale for the next step."""
    num_new = 4
    sequences = Sequences(device, num_new, device.page_size(16), dtype)
    expected = one_after_another(sequences, num_new)
    rejected = sequences.step(sequences.rows, num_new)
    rejected.qkv = device.activation(np.full((MOST_ROWS, sequences.heads.qkv_width), 7.0))
    sequences.cache.fill(sequences.poisoned)
    eagerly(rejected)
    actual = eagerly(sequences.step(sequences.rows, num_new))
    np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))

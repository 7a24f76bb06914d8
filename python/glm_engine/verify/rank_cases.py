"""Two ranks of a group beside one: sums, whole and scattered, and what ranks send each other."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier, BrokenBarrierError

import numpy as np

from glm_engine.verify import comparison, logical
from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, LINEAR, Backend, BackendError, Device, Matrix
from glm_engine.verify.header import constants, structs
from glm_engine.verify.measures import EXACT, FLOAT32, ROUNDED, Answer, Finding, finding
from glm_engine.verify.model_shape import ModelShape
from glm_engine.verify.row_cases import ROWS, coded, given_rows

WORLD_SIZE = 2
NAME = "two ranks"
Arrive = Callable[[], object]
"""Waits for the threads of all ranks: on a GPU a rank waits only 3 s for the others."""


def share(device: Device, size: int) -> slice:
    """This rank's neighbours among `size`."""
    rank, world_size = device.rank, device.world_size
    return slice(size * rank // world_size, size * (rank + 1) // world_size)


def ranks_per_device(backend: Backend) -> int:
    return 1 if backend.device_count() >= WORLD_SIZE else WORLD_SIZE


def answers(device: Device, shape: ModelShape, arrive: Arrive) -> Iterator[Answer]:
    """What every rank must answer alike, whatever their number."""
    for case in (summed_products, summed_experts, scattered_sums, exchanged_logits):
        yield from case(device, shape, arrive)
        device.release_blocks()


def summed_products(device: Device, shape: ModelShape, arrive: Arrive) -> Iterator[Answer]:
    """linear over a share of the columns, then reduce_add_norm_quantise."""
    size = (shape.hidden_size, shape.query_width)
    weight, _ = logical.stored(logical.generator("o_proj of ranks"), BF16, *size)
    own = share(device, shape.query_width)
    placed = Matrix(device, np.ascontiguousarray(weight[:, own]), BF16, LINEAR)
    text = f"{size[0]} x {size[1]} BF16"
    for rows in ROWS:
        values = logical.activations(logical.generator("summed", rows), rows, size[1])
        delta = op.linear(device, placed, values[:, own])
        arrive()
        yield from normed(device, "linear, summed and normed", text, rows, delta, shape)


def normed(
    device: Device, operation: str, text: str, rows: int, delta: np.ndarray, shape: ModelShape
) -> Iterator[Answer]:
    residual = logical.activations(logical.generator("residual", rows), rows, shape.hidden_size)
    weight = np.ones(shape.hidden_size, np.float32)
    total, plain, _ = op.add_norm(device, residual, delta, weight, shape.epsilon)
    assert plain is not None
    yield Answer(operation, text, rows, total, ROUNDED)
    yield Answer(operation, text, rows, plain, ROUNDED)


def summed_experts(device: Device, shape: ModelShape, arrive: Arrive) -> Iterator[Answer]:
    """experts over a share of the experts, then reduce_add_norm_quantise."""
    hidden, width, count = shape.hidden_size, shape.moe_intermediate_size, shape.num_experts
    stack = logical.experts(device, "expert", shape.dtype, count, hidden, width)
    own = share(device, count)
    local = stack.part(own.start, own.stop)
    for rows in ROWS:
        rng = logical.generator("experts of ranks", rows)
        given = given_rows("experts", rows, hidden, shape.dtype)
        routed = [rng.permutation(count)[: shape.top_k] for _ in range(rows)]
        ids = np.array(routed, np.int32)
        weights = rng.uniform(0.2, 1, ids.shape).astype(np.float32)
        delta = op.experts(device, local, given, ids, weights, begin=own.start)
        text = f"{count} of {width} x {hidden}"
        arrive()
        yield from normed(device, "experts, summed and normed", text, rows, delta, shape)


def scattered_sums(device: Device, shape: ModelShape, arrive: Arrive) -> Iterator[Answer]:
    """reduce_add_norm_quantise over rows of which each rank keeps its own."""
    operation, width = "reduce_add_norm_quantise, scattered", shape.hidden_size
    weight = np.ones(width, np.float32)
    own = slice(device.rank, None, device.world_size)
    for rows in (each for each in ROWS if each >= WORLD_SIZE):
        rng = logical.generator("scattered", rows)
        residual = logical.sixteenths(rng, rows, width)
        parts = np.stack([logical.sixteenths(rng, rows, width) for _ in range(WORLD_SIZE)])
        delta = parts[share(device, WORLD_SIZE)].sum(axis=0)
        arrive()
        if device.world_size == 1:
            found = op.add_norm(device, residual, delta, weight, shape.epsilon)
        else:
            found = op.scattered_add_norm(device, residual[own], delta, weight, shape.epsilon, rows)
        total, plain, quantised = found
        assert plain is not None
        yield Answer(f"{operation}: residual", f"{width}", rows, total, EXACT, own)
        yield Answer(operation, f"{width}", rows, plain, ROUNDED, own)
        yield from coded(operation, f"{width}", rows, quantised)


def exchanged_logits(device: Device, shape: ModelShape, arrive: Arrive) -> Iterator[Answer]:
    """logits over a share of the vocabulary, then all_gather, and all_to_all."""
    vocab_size = shape.vocab_size // WORLD_SIZE * WORLD_SIZE
    rng = logical.generator("head of ranks")
    weight, _ = logical.stored(rng, BF16, vocab_size, shape.hidden_size)
    head = Matrix(device, weight[share(device, vocab_size)], BF16, LINEAR)
    text = f"{vocab_size} x {shape.hidden_size} BF16"
    for rows in ROWS:
        values = logical.activations(logical.generator("logits", rows), rows, shape.hidden_size)
        found = op.logits(device, head, values, None)
        arrive()
        yield Answer("logits, gathered", text, rows, gathered(device, found), FLOAT32)
        if rows < WORLD_SIZE:
            continue
        block = -(-rows // device.world_size)
        own = slice(device.rank * block, min((device.rank + 1) * block, rows))
        arrive()
        part = dealt(device, found, block)[: own.stop - own.start]
        yield Answer("logits, dealt", text, rows, part, FLOAT32, own)


def gathered(device: Device, values: np.ndarray) -> np.ndarray:
    """all_gather of float32 rows."""
    if device.world_size == 1:
        return values
    rows, width = values.shape
    output = device.shared((rows, device.world_size * width), np.float32)
    array = structs()["glm_gathered"](4 * width, device.place(values), output.block)
    arrays = (structs()["glm_gathered"] * constants()["GLM_MAX_GATHERED"])(array)
    device.run("all_gather", num_rows=rows, num_arrays=1, arrays=arrays)
    return output.get()


def dealt(device: Device, values: np.ndarray, block: int) -> np.ndarray:
    """all_to_all of float32 rows, of which each rank gets a block over the width of all."""
    if device.world_size == 1:
        return values
    rows, width = values.shape
    output = device.shared((block, device.world_size * width), np.float32)
    placed = device.place(values)
    device.run("all_to_all", num_rows=rows, row_bytes=4 * width, input=placed, output=output.block)
    return output.get()


def on_ranks(backend: Backend, shape: ModelShape, failures: list[str]) -> list[list[Answer]]:
    """The answers of each rank of a group, a thread a rank, until one fails."""
    barrier = Barrier(WORLD_SIZE)

    def arrive() -> None:
        try:
            barrier.wait()
        except BrokenBarrierError as error:
            raise BackendError(constants()["GLM_CANCELLED"], "another rank failed") from error

    with backend.group(WORLD_SIZE, ranks_per_device(backend)) as group:

        def run(rank: int) -> list[Answer]:
            workspace, case = shape.workspace(WORLD_SIZE), partial(answers, arrive=arrive)
            found: list[Answer] = []
            message: str | None = f"rank {rank} ended early"
            try:
                with backend.device(
                    rank=rank, world_size=WORLD_SIZE, group=group, workspace=workspace
                ) as device:
                    found, message = comparison.answers(device, case, shape)
            except BackendError as error:
                message = error.text
            finally:
                if message:
                    failures.append(message)
                    barrier.abort()
                    backend.table.group_abort(group)
            return found

        with ThreadPoolExecutor(WORLD_SIZE) as threads:
            return list(threads.map(run, range(WORLD_SIZE)))


def compare_ranks(tested: Device, shape: ModelShape) -> list[Finding]:
    """Compare each rank of two with one rank alone."""
    alone, message = comparison.answers(tested, partial(answers, arrive=Barrier(1).wait), shape)
    several: list[list[Answer]] = []
    failures = [message] if message else []
    try:
        if not failures:
            several = on_ranks(tested.backend, shape, failures)
    except BackendError as error:
        failures.append(error.text)
    in_float32 = tested.activation_type == np.float32
    pairs = [pair for found in several for pair in zip(found, alone, strict=False)]
    found = comparison.worst([finding(*pair, in_float32) for pair in pairs])
    return found + [Finding(NAME, "", 0, np.inf, 0.0, text) for text in failures[:1]]

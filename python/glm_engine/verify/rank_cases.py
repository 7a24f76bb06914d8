"""Two ranks of a group beside one: sums over ranks, experts by expert, gathered logits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from glm_engine.verify import logical
from glm_engine.verify import operations as op
from glm_engine.verify.comparison import worst
from glm_engine.verify.device import BF16, LINEAR, Backend, Device, Matrix, Output
from glm_engine.verify.header import constants, structs
from glm_engine.verify.measures import ROUNDED, Answer, Finding, finding
from glm_engine.verify.model_shape import ModelShape
from glm_engine.verify.row_cases import ROWS, given_rows

WORLD_SIZE = 2


def half(size: int, rank: int, world_size: int) -> slice:
    """The share of a rank."""
    return slice(size * rank // world_size, size * (rank + 1) // world_size)


def answers(device: Device, rank: int, shape: ModelShape) -> Iterator[Answer]:
    """What every rank must answer alike, whatever their number."""
    for case in (summed_products, summed_experts, gathered_logits):
        yield from case(device, rank, shape)
        device.release_blocks()


def summed_products(device: Device, rank: int, shape: ModelShape) -> Iterator[Answer]:
    """linear over a share of the columns, then reduce_add_norm_quantise."""
    size = (shape.hidden_size, shape.query_width)
    weight, _ = logical.stored(logical.generator("o_proj of ranks"), BF16, *size)
    own = half(shape.query_width, rank, device.world_size)
    placed = Matrix(device, np.ascontiguousarray(weight[:, own]), BF16, LINEAR)
    text = f"{size[0]} x {size[1]} BF16"
    for rows in ROWS:
        values = logical.activations(logical.generator("summed", rows), rows, size[1])
        delta = op.linear(device, placed, values[:, own])
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


def summed_experts(device: Device, rank: int, shape: ModelShape) -> Iterator[Answer]:
    """experts over a share of the experts, then reduce_add_norm_quantise."""
    hidden, width, count = shape.hidden_size, shape.moe_intermediate_size, shape.num_experts
    stack = logical.experts(device, "expert", shape.dtype, count, hidden, width)
    own = half(count, rank, device.world_size)
    local = stack.part(own.start, own.stop)
    for rows in ROWS:
        rng = logical.generator("experts of ranks", rows)
        given = given_rows("experts", rows, hidden, shape.dtype)
        routed = [rng.permutation(count)[: shape.top_k] for _ in range(rows)]
        ids = np.array(routed, np.int32)
        weights = rng.uniform(0.2, 1, ids.shape).astype(np.float32)
        delta = op.experts(device, local, given, ids, weights, begin=own.start)
        text = f"{count} of {width} x {hidden}"
        yield from normed(device, "experts, summed and normed", text, rows, delta, shape)


def gathered_logits(device: Device, rank: int, shape: ModelShape) -> Iterator[Answer]:
    """logits over a share of the vocabulary, then all_gather."""
    vocab_size = shape.vocab_size // WORLD_SIZE * WORLD_SIZE
    rng = logical.generator("head of ranks")
    weight, _ = logical.stored(rng, BF16, vocab_size, shape.hidden_size)
    head = Matrix(device, weight[half(vocab_size, rank, device.world_size)], BF16, LINEAR)
    for rows in ROWS:
        values = logical.activations(logical.generator("logits", rows), rows, shape.hidden_size)
        found = gathered(device, op.logits(device, head, values, None))
        text = f"{vocab_size} x {shape.hidden_size} BF16"
        yield Answer("logits, gathered", text, rows, found, ROUNDED)


def gathered(device: Device, values: np.ndarray) -> np.ndarray:
    """all_gather of float32 rows."""
    if device.world_size == 1:
        return values
    rows, width = values.shape
    output: Output = device.shared((rows, device.world_size * width), np.float32)
    array = structs()["glm_gathered"](4 * width, device.place(values), output.block)
    arrays = (structs()["glm_gathered"] * constants()["GLM_MAX_GATHERED"])(array)
    device.run("all_gather", num_rows=rows, num_arrays=1, arrays=arrays)
    return output.get()


def on_ranks(backend: Backend, world_size: int, shape: ModelShape) -> list[list[Answer]]:
    """The answers of each rank of a group, a thread a rank."""
    with backend.group(world_size) as group:

        def run(rank: int) -> list[Answer]:
            workspace = shape.workspace(world_size)
            with backend.device(1, rank, world_size, group, workspace) as device:
                return list(answers(device, rank, shape))

        with ThreadPoolExecutor(world_size) as threads:
            return list(threads.map(run, range(world_size)))


def compare_ranks(backend: Backend, shape: ModelShape) -> list[Finding]:
    """Compare each rank of two with one rank alone."""
    with backend.device(1, workspace=shape.workspace()) as device:
        alone = list(answers(device, 0, shape))
    return worst(
        [
            finding(*pair, in_float32=True)
            for found in on_ranks(backend, WORLD_SIZE, shape)
            for pair in zip(found, alone, strict=True)
        ]
    )

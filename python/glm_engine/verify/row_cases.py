"""Operations on rows, and products with matrices, at the widths of a model."""

from collections.abc import Iterator

import numpy as np

from glm_engine.verify import logical
from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, GATE_UP, LINEAR, TABLE, Device
from glm_engine.verify.measures import (
    CHOICES,
    CODES,
    EXACT,
    FLOAT32,
    MEDIAN,
    ONE_STEP,
    ROUNDED,
    SCALES,
    Answer,
)
from glm_engine.verify.model_shape import ModelShape

ROWS = (1, 7, 33, 130)
DTYPES = {FP8: "FP8", BF16: "BF16"}
ROUTER_SHRINK = 0.5


def vectors(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """place_vector of both types that a checkpoint holds."""
    for dtype, name in ((F32, "F32"), (BF16, "BF16")):
        rng = logical.generator("vector", dtype)
        (source,), _ = logical.stored(rng, dtype, 1, shape.hidden_size)
        placed = device.output(source.shape, np.float32)
        device.run(
            "place_vector",
            source=source.ctypes.data,
            source_dtype=dtype,
            count=len(source),
            destination=placed.block,
        )
        yield Answer("place_vector", f"{len(source)} {name}", 1, placed.get(), EXACT)


def embedding(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """embed and embed_norm_concat."""
    width, text = shape.hidden_size, f"{shape.vocab_size} x {shape.hidden_size} BF16"
    table = logical.matrix(device, logical.generator("table"), BF16, shape.vocab_size, width, TABLE)
    for rows in ROWS:
        rng = logical.generator("embedding", rows)
        ids = rng.integers(0, shape.vocab_size, rows)
        ids[-1] = shape.vocab_size - 1
        yield Answer("embed", text, rows, op.embed(device, table, ids), EXACT)
        hidden = logical.activations(rng, rows, width)
        norms = 1 + 0.1 * rng.standard_normal((2, width)).astype(np.float32)
        positions = rng.integers(0, 3, rows)
        given = (ids, positions, hidden, norms, shape.epsilon)
        both = op.embed_norm_concat(device, table, *given)
        yield Answer("embed_norm_concat", text, rows, both[:, :width], ROUNDED)
        yield Answer("embed_norm_concat", text, rows, both[:, width:], ROUNDED)


def coded(operation: str, text: str, rows: int, given: op.Quantised | None) -> Iterator[Answer]:
    if given is not None:
        yield Answer(f"{operation}: codes", text, rows, given.codes, CODES)
        yield Answer(f"{operation}: scales", text, rows, given.scale, SCALES)


def quantisers(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """quantise and reduce_add_norm_quantise."""
    for width in sorted({shape.hidden_size, shape.query_width}):
        for rows in ROWS:
            values = logical.activations(logical.generator("quantise", width, rows), rows, width)
            yield from coded("quantise", f"{width}", rows, op.quantise(device, values))
    width, text = shape.hidden_size, f"{shape.hidden_size}"
    for rows in ROWS:
        rng = logical.generator("norm", rows)
        residual, delta = (logical.sixteenths(rng, rows, width) for _ in range(2))
        weight = 1 + 0.1 * rng.standard_normal(width).astype(np.float32)
        for given in (delta, None):
            total, plain, quantised = op.add_norm(device, residual, given, weight, shape.epsilon)
            assert plain is not None
            yield Answer("reduce_add_norm_quantise: residual", text, rows, total, EXACT)
            yield Answer("reduce_add_norm_quantise", text, rows, plain, ROUNDED)
            yield from coded("reduce_add_norm_quantise", text, rows, quantised)


def swiglu(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """swiglu_quantise, of rows in the order in which the device's own `linear` leaves them."""
    for width in sorted({shape.intermediate_size, shape.shared_width} - {0}):
        order = logical.gate_up_order(device, 2 * width)
        for rows in ROWS:
            rng = logical.generator("swiglu", width, rows)
            both = logical.activations(rng, rows, 2 * width)
            plain, quantised = op.swiglu(device, both[:, order])
            assert plain is not None
            yield Answer("swiglu_quantise", f"{width}", rows, plain, ROUNDED)
            yield from coded("swiglu_quantise", f"{width}", rows, quantised)


def given_rows(key: str, rows: int, width: int, dtype: int) -> np.ndarray | op.Quantised:
    """Rows as a matrix of this dtype takes them, equal on every device."""
    rng = logical.generator("rows", key, rows, width)
    if dtype != FP8:
        return logical.activations(rng, rows, width)
    scale = rng.uniform(0.75, 1.25, rows) / logical.CODE_DEVIATION
    return op.Quantised(logical.codes(rng, (rows, width)), scale.astype(np.float32))


def linears(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """linear in both dtypes: the attention's, the dense MLP's, the prediction layer's."""
    hidden, width, qkv = shape.hidden_size, shape.intermediate_size, shape.heads.qkv_width
    wanted = [
        ("qkv", LINEAR, qkv, hidden, shape.has_bias),
        ("o_proj", LINEAR, hidden, shape.query_width, False),
        ("gate_up", GATE_UP, 2 * width, hidden, False),
        ("down", LINEAR, hidden, width, False),
    ]
    for dtype in (FP8, BF16):
        for name, role, rows, columns, has_bias in wanted:
            yield from products(device, name, dtype, (role, rows, columns), has_bias)
    if shape.has_prediction_layer:
        yield from products(device, "eh_proj", BF16, (LINEAR, hidden, 2 * hidden), False)


def products(
    device: Device, name: str, dtype: int, matrix: tuple[int, int, int], has_bias: bool
) -> Iterator[Answer]:
    role, num_rows, columns = matrix
    rng = logical.generator(name, dtype)
    placed = logical.matrix(device, rng, dtype, num_rows, columns, role, has_bias)
    order = logical.gate_up_order(device, num_rows) if role == GATE_UP else None
    for rows in ROWS:
        values = op.linear(device, placed, given_rows(name, rows, columns, dtype))
        if order is not None:
            laid_out, values = values, np.empty_like(values)
            values[:, order] = laid_out
        text = f"{num_rows} x {columns} {DTYPES[dtype]}"
        yield Answer(f"linear: {name}", text, rows, values, ROUNDED)
    device.release_blocks()


def logits(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """logits of every row and of chosen ones."""
    size = (shape.vocab_size, shape.hidden_size)
    head = logical.matrix(device, logical.generator("head"), BF16, *size)
    for rows in ROWS:
        rng = logical.generator("logits", rows)
        values = logical.activations(rng, rows, shape.hidden_size)
        for chosen in (None, rng.permutation(rows)):
            found = op.logits(device, head, values, chosen)
            yield Answer("logits", f"{size[0]} x {size[1]} BF16", rows, found, FLOAT32)


def route(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """route: the chosen experts, and their weights in the order of their ids."""
    size = (shape.num_experts, shape.hidden_size)
    router = logical.matrix(device, logical.generator("router"), F32, *size)
    text = f"{size[0]} x {size[1]}, top {shape.top_k}"
    for rows in ROWS:
        rng = logical.generator("route", rows)
        values = ROUTER_SHRINK * logical.activations(rng, rows, shape.hidden_size)
        bias = rng.uniform(-0.1, 0.1, shape.num_experts)
        chosen = op.route(device, router, values, bias, shape.top_k, factor=shape.scaling_factor)
        order = np.argsort(chosen[0], axis=1)
        ids, weights = (np.take_along_axis(each, order, axis=1) for each in chosen)
        dense = np.zeros((rows, shape.num_experts), np.float32)
        np.put_along_axis(dense, np.clip(ids, 0, shape.num_experts - 1), weights, axis=1)
        yield Answer("route: experts", text, rows, ids, CHOICES)
        yield Answer("route: weights", text, rows, dense, FLOAT32)


def experts(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """experts with a sum to add to, without and with a shared expert that rows choose first."""
    hidden, width, dtype = shape.hidden_size, shape.moe_intermediate_size, shape.dtype
    stack = logical.experts(device, "expert", dtype, shape.num_experts, hidden, width)
    text = f"{shape.num_experts} of {width} x {hidden} {DTYPES[dtype]}"
    shared = None
    if shape.shared_width and shape.shared_width <= width:
        shared_stack = logical.experts(device, "shared", dtype, 1, hidden, shape.shared_width)
        shared = op.SharedExpert(shape.num_experts, shared_stack)
    for rows in ROWS:
        rng = logical.generator("experts", rows)
        given = given_rows("experts", rows, hidden, dtype)
        initial = logical.activations(rng, rows, hidden)
        routed = [rng.permutation(shape.num_experts)[: shape.top_k] for _ in range(rows)]
        ids = np.array(routed, np.int32)
        weights = rng.uniform(0.2, 1, ids.shape).astype(np.float32)
        found = op.experts(device, stack, given, ids, weights, initial=initial)
        yield from rows_of_experts("experts", text, rows, found, dtype)
        if shared is not None:
            chosen = np.column_stack([np.full(rows, shared.id, np.int32), ids])
            shares = np.column_stack([np.ones(rows, np.float32), weights])
            found = op.experts(device, stack, given, chosen, shares, initial=None, shared=shared)
            yield from rows_of_experts("experts with a shared one", text, rows, found, dtype)


def rows_of_experts(
    operation: str, text: str, rows: int, values: np.ndarray, dtype: int
) -> Iterator[Answer]:
    """The inner rows of FP8 experts are quantised again: one code beside a border may move a row
    by more than rounding does, but never most rows."""
    if dtype != FP8:
        yield Answer(operation, text, rows, values, ROUNDED)
        return
    yield Answer(f"{operation}: median row", text, rows, values, MEDIAN)
    yield Answer(f"{operation}: worst row", text, rows, values, ONE_STEP)

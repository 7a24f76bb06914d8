"""Operations with one weight matrix: linear layers, router, head."""

from collections.abc import Sequence
from ctypes import Structure

import torch

from glm_engine.verify.device import BF16, F32, FP8, GATE_UP, LINEAR
from tools.bench.kernels import library
from tools.bench.kernels.case import (
    BF16_PRODUCT,
    FP8_PRODUCT,
    READ,
    Call,
    Case,
    Library,
    num_sets,
)
from tools.bench.kernels.device import KernelDevice, struct
from tools.bench.kernels.models import TOP_K, Model
from tools.bench.kernels.plain_read import plain_read

LAYERS = {
    "qkv": (LINEAR, "qkv_width", "hidden_size"),
    "output": (LINEAR, "hidden_size", "query_width"),
    "shared gate_up": (GATE_UP, "shared_intermediate_size", "hidden_size"),
    "shared down": (LINEAR, "hidden_size", "shared_intermediate_size"),
    "dense gate_up": (GATE_UP, "intermediate_size", "hidden_size"),
    "dense down": (LINEAR, "hidden_size", "intermediate_size"),
}
ELEMENTS = {FP8: torch.float8_e4m3fn, BF16: torch.bfloat16}
PRODUCTS = {FP8: FP8_PRODUCT, BF16: BF16_PRODUCT}
NAMES = {FP8: "FP8", BF16: "BF16"}


def layers_of(model: Model) -> list[str]:
    """All layers, the first of those that have equal shapes."""
    first_of: dict[tuple[int, int, int], str] = {}
    for layer in LAYERS:
        first_of.setdefault(layer_shape(model, layer), layer)
    return list(first_of.values())


def layer_shape(model: Model, layer: str) -> tuple[int, int, int]:
    """(role, rows, columns)."""
    role, *names = LAYERS[layer]
    rows, columns = (getattr(model, name) for name in names)
    return role, rows * (2 if role == GATE_UP else 1), columns


def as_rows(data: torch.Tensor, dtype: int, rows: int, columns: int) -> torch.Tensor:
    """The memory of a packed matrix as a row-major one: as random, and of the same bytes."""
    return data.view(ELEMENTS[dtype])[: rows * columns].view(rows, columns)


def code_input(num_tokens: int, width: int) -> tuple[Structure, object]:
    """(glm_activation of random codes, its tensors)."""
    codes = library.fp8(num_tokens, width)
    scale = torch.rand(num_tokens, device="cuda") * 0.01
    return struct("activation", plain=None, codes=codes, row_scale=scale), (codes, scale)


def plain_input(num_tokens: int, width: int) -> tuple[Structure, object]:
    """(glm_activation of random BF16 values, its tensor)."""
    values = library.bf16(num_tokens, width)
    return struct("activation", plain=values, codes=None, row_scale=None), values


def product_beside(
    dtype: int, num_tokens: int, is_decode: bool, weights: Sequence[torch.Tensor]
) -> Library:
    if dtype == FP8:
        products = [library.scaled_products(num_tokens, weight) for weight in weights]
        return library.fast_and_exact("_scaled_mm (rows, fast)", products, is_decode)
    calls = [library.plain_product(num_tokens, weight) for weight in weights]
    return Library("BF16 product", calls)


def linear(
    device: KernelDevice,
    model: Model,
    num_tokens: int,
    is_decode: bool,
    layer: str,
    dtype: int = FP8,
) -> Case:
    role, rows, columns = layer_shape(model, layer)
    width = 1 if dtype == FP8 else 2
    size = width * rows * columns + num_tokens * (width * columns + 2 * rows)
    make_input = code_input if dtype == FP8 else plain_input
    given, tensors = make_input(num_tokens, columns)
    output = library.bf16(num_tokens, rows)
    matrices = [device.matrix(dtype, role, rows, columns, seed) for seed in range(num_sets(size))]
    weights = [as_rows(memory[0], dtype, rows, columns) for _, memory in matrices]
    calls: list[Call] = [
        device.call("linear", num_tokens=num_tokens, matrix=matrix, input=given, output=output)
        for matrix, _ in matrices
    ]
    return Case(
        "linear",
        f"{layer} {NAMES[dtype]} {rows}x{columns}",
        num_tokens,
        size,
        calls,
        2.0 * num_tokens * rows * columns,
        READ if is_decode else PRODUCTS[dtype],
        product_beside(dtype, num_tokens, is_decode, weights),
        [tensors, output, matrices],
        reads=[plain_read(weight) for weight in weights] if is_decode else (),
    )


def route(device: KernelDevice, model: Model, num_tokens: int) -> Case:
    rows, columns = model.num_experts, model.hidden_size
    size = 4 * rows * columns + num_tokens * (2 * columns + 8 * TOP_K)
    given = library.bf16(num_tokens, columns)
    bias = torch.zeros(rows, device="cuda")
    ids = torch.empty(num_tokens, TOP_K, dtype=torch.int32, device="cuda")
    weights = torch.empty(num_tokens, TOP_K, device="cuda")
    matrices = [device.matrix(F32, LINEAR, rows, columns, seed) for seed in range(num_sets(size))]
    calls: list[Call] = [
        device.call(
            "route",
            num_tokens=num_tokens,
            top_k=TOP_K,
            normalise=1,
            scaling_factor=1.0,
            input=given,
            router=router,
            selection_bias=bias,
            expert_ids=ids,
            expert_weights=weights,
        )
        for router, _ in matrices
    ]
    routers = [torch.randn(rows, columns, device="cuda") for _ in calls]
    peer = Library(
        "F32 product, sigmoid, topk, gather, sum, quotient",
        [library.routed(num_tokens, router, TOP_K) for router in routers],
    )
    flops = 2.0 * num_tokens * rows * columns
    return Case("route", f"{rows}x{columns}", num_tokens, size, calls, flops, READ, peer, matrices)


def logits(device: KernelDevice, model: Model, num_tokens: int) -> Case:
    rows, columns = model.local_vocab_size, model.hidden_size
    size = 2 * rows * columns + num_tokens * (2 * columns + 4 * rows)
    given = library.bf16(num_tokens, columns)
    index = torch.arange(num_tokens, dtype=torch.int32, device="cuda")
    output = torch.empty(num_tokens, rows, device="cuda")
    matrices = [device.matrix(BF16, LINEAR, rows, columns, seed) for seed in range(num_sets(size))]
    weights = [as_rows(memory[0], BF16, rows, columns) for _, memory in matrices]
    calls: list[Call] = [
        device.call(
            "logits",
            num_rows=num_tokens,
            row_index=index,
            input=given,
            head=head,
            output=output,
        )
        for head, _ in matrices
    ]
    beside = [library.head_product(num_tokens, weight) for weight in weights]
    peer = Library("BF16 product, F32 out", beside)
    flops = 2.0 * num_tokens * rows * columns
    return Case("logits", f"{rows}x{columns}", num_tokens, size, calls, flops, READ, peer, matrices)

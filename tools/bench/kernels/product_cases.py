"""Operations with weights: linear layers, router, head, experts."""

import torch

from tests.native.backend import BF16, F32, FP8, GATE_UP, LINEAR
from tools.bench.kernels import library
from tools.bench.kernels.case import PRODUCT, READ, Case, Library, num_sets
from tools.bench.kernels.device import KernelDevice, struct
from tools.bench.kernels.models import TOP_K, Model
from tools.bench.kernels.row_cases import kind_of

LAYERS = {
    "qkv": (LINEAR, "qkv_width", "hidden_size"),
    "output": (LINEAR, "hidden_size", "query_width"),
    "gate_up": (GATE_UP, "moe_intermediate_size", "hidden_size"),
    "down": (LINEAR, "hidden_size", "moe_intermediate_size"),
}


def bound_of(is_decode: bool) -> str:
    return READ if is_decode else PRODUCT


def code_input(num_tokens: int, width: int):
    """(glm_activation of random codes, its tensors)."""
    codes = library.fp8(num_tokens, width)
    scale = torch.rand(num_tokens, device="cuda") * 0.01
    return struct("activation", plain=None, codes=codes, row_scale=scale), (codes, scale)


def linear(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool, layer: str):
    role, *names = LAYERS[layer]
    rows, columns = (getattr(model, name) for name in names)
    rows *= 2 if role == GATE_UP else 1
    size = rows * columns + num_tokens * (columns + 2 * rows)
    given, tensors = code_input(num_tokens, columns)
    output = library.bf16(num_tokens, rows)
    calls, keep = [], [tensors, output]
    for seed in range(num_sets(size)):
        matrix, memory = device.matrix(FP8, role, rows, columns, seed)
        keep += [matrix, memory]
        kind = kind_of(num_tokens, is_decode)
        fields = {"rows": kind, "matrix": matrix, "input": given, "output": output}
        calls.append(device.call("linear", **fields))
    beside = [library.scaled_product(num_tokens, rows, columns) for _ in calls]
    peer = Library("_scaled_mm (rows, fast)", beside)
    flops = 2.0 * num_tokens * rows * columns
    shape = f"{layer} {rows}x{columns}"
    return Case("linear", shape, num_tokens, size, calls, flops, bound_of(is_decode), peer, keep)


def route(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    rows, columns = model.num_experts, model.hidden_size
    size = 4 * rows * columns + num_tokens * (2 * columns + 8 * TOP_K)
    given = library.bf16(num_tokens, columns)
    bias = torch.zeros(rows, device="cuda")
    ids = torch.empty(num_tokens, TOP_K, dtype=torch.int32, device="cuda")
    weights = torch.empty(num_tokens, TOP_K, device="cuda")
    calls, keep = [], [given, bias, ids, weights]
    for seed in range(num_sets(size)):
        router, memory = device.matrix(F32, LINEAR, rows, columns, seed)
        keep += [router, memory]
        fields = {"rows": kind_of(num_tokens, is_decode), "top_k": TOP_K, "normalise": 1}
        fields |= {"scaling_factor": 1.0, "input": given, "router": router}
        fields |= {"selection_bias": bias, "expert_ids": ids, "expert_weights": weights}
        calls.append(device.call("route", **fields))
    beside = [library.plain_product(num_tokens, rows, columns) for _ in calls]
    peer = Library("BF16 product alone", beside)
    flops = 2.0 * num_tokens * rows * columns
    return Case("route", f"{rows}x{columns}", num_tokens, size, calls, flops, READ, peer, keep)


def logits(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    del is_decode
    rows, columns = model.local_vocab_size, model.hidden_size
    size = 2 * rows * columns + num_tokens * (2 * columns + 4 * rows)
    given = library.bf16(num_tokens, columns)
    index = torch.arange(num_tokens, dtype=torch.int32, device="cuda")
    output = torch.empty(num_tokens, rows, device="cuda")
    calls, keep = [], [given, index, output]
    for seed in range(min(2, num_sets(size))):
        head, memory = device.matrix(BF16, LINEAR, rows, columns, seed)
        keep += [head, memory]
        fields = {"num_rows": num_tokens, "row_index": index, "input": given}
        calls.append(device.call("logits", **fields, head=head, output=output))
    beside = [library.plain_product(num_tokens, rows, columns) for _ in calls]
    peer = Library("BF16 product, BF16 out", beside)
    flops = 2.0 * num_tokens * rows * columns
    return Case("logits", f"{rows}x{columns}", num_tokens, size, calls, flops, READ, peer, keep)


class ExpertWeights:
    """All local experts of a layer, one after the other."""

    def __init__(self, device: KernelDevice, role: int, num_experts: int, rows: int, columns: int):
        self.first, (data, scale) = device.matrix(FP8, role, rows, columns)
        self.stride, self.scale_stride = data.numel(), 4 * rows
        self.data = data.repeat(num_experts)
        self.scale = scale.repeat(num_experts)
        self.first.data, self.first.row_scale = self.data.data_ptr(), self.scale.data_ptr()


def random_routes(model: Model, num_tokens: int):
    """(expert ids, weights, tokens of each local expert), near uniform."""
    scores = torch.rand(num_tokens, model.num_experts, device="cuda")
    ids = scores.topk(TOP_K).indices.to(torch.int32)
    counts = torch.bincount(ids.flatten(), minlength=model.num_experts)
    weights = torch.full((num_tokens, TOP_K), 1 / TOP_K, device="cuda")
    return ids, weights, counts[: model.num_local_experts].tolist()


def expert_library(model: Model, counts: list[int]) -> Library:
    width, hidden = model.moe_intermediate_size, model.hidden_size
    gate_up = library.grouped_product(counts, 2 * width, hidden)
    down = library.grouped_product(counts, hidden, width)

    def both():
        gate_up()
        return down()

    return Library("2 x _scaled_grouped_mm alone", [both])


def experts(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, hidden, local = model.moe_intermediate_size, model.hidden_size, model.num_local_experts
    gate_up = ExpertWeights(device, GATE_UP, local, 2 * width, hidden)
    down = ExpertWeights(device, LINEAR, local, hidden, width)
    given, tensors = code_input(num_tokens, hidden)
    output = library.bf16(num_tokens, hidden)
    routes = [random_routes(model, num_tokens) for _ in range(8 if is_decode else 1)]
    fields = {"rows": kind_of(num_tokens, is_decode), "top_k": TOP_K, "num_local_experts": local}
    fields |= {"gate_up": gate_up.first, "down": down.first, "input": given, "output": output}
    fields |= {"gate_up_stride": gate_up.stride, "down_stride": down.stride}
    fields |= {"gate_up_scale_stride": gate_up.scale_stride}
    fields |= {"down_scale_stride": down.scale_stride}
    calls = [
        device.call("experts", **fields, expert_ids=ids, expert_weights=weights)
        for ids, weights, _ in routes
    ]
    hit = sum(sum(count > 0 for count in counts) for *_, counts in routes) / len(routes)
    pairs = sum(sum(counts) for *_, counts in routes) / len(routes)
    size = hit * 3 * width * hidden + 3 * num_tokens * hidden
    flops = 6.0 * pairs * width * hidden
    keep = [gate_up, down, tensors, output, routes]
    peer = expert_library(model, routes[0][2])
    shape = f"{local} of {hidden}x{width}"
    return Case("experts", shape, num_tokens, size, calls, flops, bound_of(is_decode), peer, keep)

"""The experts of a layer."""

from collections.abc import Sequence

import torch

from glm_engine.verify.device import FP8, GATE_UP, LINEAR, NO_SHARED_EXPERT
from tools.bench.kernels import library
from tools.bench.kernels.case import FP8_PRODUCT, READ, Case
from tools.bench.kernels.device import KernelDevice
from tools.bench.kernels.models import TOP_K, Model
from tools.bench.kernels.product_cases import code_input

NUM_ROUTES = 8


class ExpertWeights:
    """All local experts of a layer, one after the other, each with the values of the first."""

    def __init__(self, device: KernelDevice, role: int, num_experts: int, rows: int, columns: int):
        self.shape = (num_experts, rows, columns)
        self.first, (data, scale) = device.matrix(FP8, role, rows, columns)
        self.stride, self.scale_stride = data.numel(), 4 * rows
        self.data = data.repeat(num_experts)
        self.scale = scale.repeat(num_experts)
        self.first.data, self.first.row_scale = self.data.data_ptr(), self.scale.data_ptr()

    def as_rows(self) -> torch.Tensor:
        """The same memory as row-major matrices [experts, rows, columns]."""
        num_experts, rows, columns = self.shape
        codes = self.data.view(torch.float8_e4m3fn).view(num_experts, self.stride)
        return codes[:, : rows * columns].unflatten(1, (rows, columns))


def random_routes(model: Model, num_tokens: int) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """(expert ids, weights, tokens of each local expert), near uniform."""
    scores = torch.rand(num_tokens, model.num_experts, device="cuda")
    ids = scores.topk(TOP_K).indices.to(torch.int32)
    counts = torch.bincount(ids.flatten(), minlength=model.num_experts)
    weights = torch.full((num_tokens, TOP_K), 1 / TOP_K, device="cuda")
    return ids, weights, counts[: model.num_local_experts].tolist()


def products_beside(
    counts: Sequence[int], gate_up: torch.Tensor, down: torch.Tensor
) -> library.Products:
    both = [library.grouped_products(counts, weight) for weight in (gate_up, down)]
    return library.Products(
        lambda: [product.fast() for product in both], lambda: [product.exact() for product in both]
    )


def experts(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, hidden, local = model.moe_intermediate_size, model.hidden_size, model.num_local_experts
    gate_up = ExpertWeights(device, GATE_UP, local, 2 * width, hidden)
    down = ExpertWeights(device, LINEAR, local, hidden, width)
    given, tensors = code_input(num_tokens, hidden)
    output = library.bf16(num_tokens, hidden)
    routes = [random_routes(model, num_tokens) for _ in range(NUM_ROUTES if is_decode else 1)]
    calls = [
        device.call(
            "experts",
            num_tokens=num_tokens,
            top_k=TOP_K,
            num_local_experts=local,
            shared_expert_id=NO_SHARED_EXPERT,
            gate_up=gate_up.first,
            gate_up_stride=gate_up.stride,
            gate_up_scale_stride=gate_up.scale_stride,
            down=down.first,
            down_stride=down.stride,
            down_scale_stride=down.scale_stride,
            input=given,
            output=output,
            expert_ids=ids,
            expert_weights=weights,
        )
        for ids, weights, _ in routes
    ]
    weights = (gate_up.as_rows(), down.as_rows())
    beside = [products_beside(counts, *weights) for *_, counts in routes]
    hit = sum(sum(count > 0 for count in counts) for *_, counts in routes) / len(routes)
    pairs = sum(sum(counts) for *_, counts in routes) / len(routes)
    return Case(
        "experts",
        f"{local} of {hidden}x{width}",
        num_tokens,
        3 * width * hidden * hit + 3 * num_tokens * hidden,
        calls,
        6.0 * pairs * width * hidden,
        READ if is_decode else FP8_PRODUCT,
        library.fast_and_exact("2 x _scaled_grouped_mm alone", beside, is_decode),
        keep=[gate_up, down, tensors],
    )

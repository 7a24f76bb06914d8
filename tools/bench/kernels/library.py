"""What PyTorch does in the place of an operation, timed in CUDA graphs like the operation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional

from tools.bench.kernels import timing
from tools.bench.kernels.case import Call, Library

GROUP_ROWS = 16
BLOCK = 1 << 24


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def fp8(*shape: int) -> torch.Tensor:
    """Normal values; past 16 million they repeat."""
    size = math.prod(shape)
    values = torch.randn(min(size, BLOCK), device="cuda").clamp_(-8, 8)
    block = values.to(torch.float8_e4m3fn).view(torch.uint8)
    whole = block.repeat(-(-size // len(block)))[:size]
    return whole.view(torch.float8_e4m3fn).view(*shape)


@cache
def stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()


def elapsed_ms(work: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream())
    work()
    end.record(stream())
    end.synchronize()
    return float(begin.elapsed_time(end))


def captured(calls: Sequence[Call]) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream()):
        for call in calls:
            call()
    return graph


def microseconds(calls: Sequence[Call]) -> float:
    """Median time of a call in a graph that makes each call at least once."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream()):
        calls[0]()
        first_us = 1e3 * elapsed_ms(calls[0])
        repeated = list(calls) * timing.num_repeats(len(calls), first_us)
        graph = captured(repeated)
        return timing.median_us(lambda: elapsed_ms(graph.replay), len(repeated))


@dataclass(frozen=True)
class Products:
    """The same product with fast and with exact accumulation."""

    fast: Call
    exact: Call


def fast_and_exact(name: str, products: Sequence[Products], is_decode: bool) -> Library:
    """Both ways of decode rows; of prompt rows the fast one alone."""
    exact = [product.exact for product in products] if is_decode else ()
    return Library(name, [product.fast for product in products], exact)


def both_products(product: Callable[[bool], object]) -> Products:
    return Products(lambda: product(True), lambda: product(False))


def scaled_products(num_tokens: int, weight: torch.Tensor) -> Products:
    """BF16 = FP8 [num_tokens, columns] · FP8 weight [rows, columns]ᵀ, scaled by row."""
    rows, columns = weight.shape
    values = fp8(num_tokens, columns)
    scales = torch.rand(num_tokens, 1, device="cuda"), torch.rand(1, rows, device="cuda")

    def product(fast: bool) -> torch.Tensor:
        return torch._scaled_mm(
            values, weight.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    return both_products(product)


def plain_product(num_tokens: int, weight: torch.Tensor) -> Call:
    """A function: BF16 = BF16 [num_tokens, columns] · BF16 weight [rows, columns]ᵀ."""
    values = bf16(num_tokens, weight.shape[1])
    return lambda: values @ weight.t()


def head_product(num_tokens: int, weight: torch.Tensor) -> Call:
    """A function: float32 = BF16 [num_tokens, columns] · BF16 weight [rows, columns]ᵀ."""
    values = bf16(num_tokens, weight.shape[1])
    return lambda: torch.mm(values, weight.t(), out_dtype=torch.float32)


def routed(num_tokens: int, router: torch.Tensor, top_k: int) -> Call:
    """A function: experts and normalised weights of each token by a product in float32, a sigmoid,
    a bias and top_k."""
    values = bf16(num_tokens, router.shape[1])
    bias = torch.zeros(len(router), device="cuda")

    def route() -> tuple[torch.Tensor, torch.Tensor]:
        scores = (values.float() @ router.t()).sigmoid()
        ids = (scores + bias).topk(top_k, sorted=False).indices
        weights = scores.gather(1, ids)
        return ids, weights / weights.sum(-1, keepdim=True)

    return route


def grouped_products(counts: Sequence[int], weight: torch.Tensor) -> Products:
    """One FP8 product an expert of weight [experts, rows, columns]; each group is padded to 16
    rows as PyTorch wants it."""
    padded = [-(-count // GROUP_ROWS) * GROUP_ROWS for count in counts]
    total, (num_experts, rows, columns) = max(GROUP_ROWS, sum(padded)), weight.shape
    ends = torch.tensor(padded, device="cuda").cumsum(0).to(torch.int32)
    values = fp8(total, columns)
    scales = torch.rand(total, device="cuda"), torch.rand(num_experts, rows, device="cuda")

    def product(fast: bool) -> torch.Tensor:
        return torch._scaled_grouped_mm(
            values,
            weight.transpose(-2, -1),
            *scales,
            offs=ends,
            out_dtype=torch.bfloat16,
            use_fast_accum=fast,
        )

    return both_products(product)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Call:
    """scaled_dot_product_attention over contiguous [batch, heads, positions, head_dim]."""
    is_causal = query.shape[2] > 1

    def attend() -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, enable_gqa=True
        )

    return attend


def add_and_norm(num_tokens: int, width: int) -> Call:
    residual, delta, weight = bf16(num_tokens, width), bf16(num_tokens, width), bf16(width)

    def norm() -> torch.Tensor:
        return functional.rms_norm(residual.add_(delta, alpha=1e-3), (width,), weight)

    return norm


def head_norm(num_tokens: int, num_heads: int, head_dim: int) -> Call:
    """RMSNorm of every head."""
    heads, weight = bf16(num_tokens, num_heads, head_dim), bf16(head_dim)
    return lambda: functional.rms_norm(heads, (head_dim,), weight)


def gated(num_tokens: int, width: int) -> Call:
    gate, up = bf16(num_tokens, width), bf16(num_tokens, width)
    return lambda: functional.silu(gate) * up


def looked_up(num_tokens: int, table: torch.Tensor) -> Call:
    ids = torch.randint(0, len(table), (num_tokens,), device="cuda")
    return lambda: torch.index_select(table, 0, ids)


def copied(target: torch.Tensor, source: torch.Tensor) -> Call:
    return lambda: target.copy_(source, non_blocking=True)

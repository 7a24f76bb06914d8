"""What PyTorch does in the place of an operation, timed in CUDA graphs like the operation."""

import statistics
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional

NUM_REPLAYS = 11
MIN_CALLS = 24
GROUP_ROWS = 16


def bf16(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def fp8(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").clamp(-8, 8).to(torch.float8_e4m3fn)


def microseconds(calls: Sequence[Callable[[], object]]) -> float:
    """Median time of a call in a graph that makes each call at least once."""
    stream = torch.cuda.Stream()
    repeated = list(calls) * -(-MIN_CALLS // len(calls))
    with torch.cuda.stream(stream):
        calls[0]()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for call in repeated:
                call()
        times = [elapsed_ms(graph, stream) for _ in range(NUM_REPLAYS)][1:]
    return 1e3 * statistics.median(times) / len(repeated)


def elapsed_ms(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    graph.replay()
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end)


def scaled_product(num_tokens: int, rows: int, columns: int, fast: bool = True):
    """A function: BF16 = FP8 [num_tokens, columns] · FP8 [rows, columns]ᵀ, scaled by row."""
    values, weight = fp8(num_tokens, columns), fp8(rows, columns)
    scales = torch.rand(num_tokens, 1, device="cuda"), torch.rand(1, rows, device="cuda")

    def product():
        return torch._scaled_mm(
            values, weight.t(), *scales, out_dtype=torch.bfloat16, use_fast_accum=fast
        )

    return product


def plain_product(num_tokens: int, rows: int, columns: int):
    values, weight = bf16(num_tokens, columns), bf16(rows, columns)
    return lambda: values @ weight.t()


def grouped_product(counts: Sequence[int], rows: int, columns: int):
    """One FP8 product an expert, each group padded to 16 rows as PyTorch wants it."""
    padded = [-(-count // GROUP_ROWS) * GROUP_ROWS for count in counts]
    total, num_experts = max(GROUP_ROWS, sum(padded)), len(counts)
    ends = torch.tensor(padded, device="cuda").cumsum(0).to(torch.int32)
    values, weight = fp8(total, columns), fp8(num_experts * rows, columns)
    weight = weight.view(num_experts, rows, columns)
    scales = torch.rand(total, device="cuda"), torch.rand(num_experts, rows, device="cuda")

    def product():
        return torch._scaled_grouped_mm(
            values,
            weight.transpose(-2, -1),
            *scales,
            offs=ends,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )

    return product


def attention(num_heads: int, num_kv_heads: int, batch: int, queries: int, context: int):
    """scaled_dot_product_attention over contiguous keys and values."""
    query = bf16(batch, num_heads, queries, 128)
    key, value = (bf16(batch, num_kv_heads, context, 128) for _ in range(2))

    def attend():
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=queries > 1, enable_gqa=True
        )

    return attend


def add_and_norm(num_tokens: int, width: int):
    residual, delta, weight = bf16(num_tokens, width), bf16(num_tokens, width), bf16(width)

    def norm():
        return functional.rms_norm(residual.add_(delta, alpha=1e-3), (width,), weight)

    return norm


def gated(num_tokens: int, width: int):
    gate, up = bf16(num_tokens, width), bf16(num_tokens, width)
    return lambda: functional.silu(gate) * up


def looked_up(num_tokens: int, table: torch.Tensor):
    ids = torch.randint(0, len(table), (num_tokens,), device="cuda")
    return lambda: functional.embedding(ids, table)


def greatest(num_rows: int, vocab_size: int):
    logits = torch.randn(num_rows, vocab_size, device="cuda")
    return lambda: logits.argmax(-1)

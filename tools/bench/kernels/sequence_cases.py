"""Attention over pages, and sampling."""

import torch

from tests.native.backend import BF16, rows, structs
from tools.bench.kernels import library
from tools.bench.kernels.case import PRODUCT, READ, Case, Library
from tools.bench.kernels.device import KernelDevice, struct
from tools.bench.kernels.models import HEAD_DIM, PAGE_SIZE, Model

SAMPLING_KINDS = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0},
    "top_p 0.95": {"temperature": 0.7, "top_p": 0.95},
    "top_k 50": {"temperature": 1.0, "top_k": 50},
}


def integers(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def random_pages(device: KernelDevice, model: Model, num_pages: int):
    """(glm_kv_cache of random BF16 values, its memory)."""
    shape = (BF16, 1, num_pages, PAGE_SIZE, model.num_kv_heads, HEAD_DIM)
    cache = structs()["glm_kv_cache"](*shape)
    memory = library.bf16(num_pages * device.page_bytes(cache) // 2)
    cache.data = memory.data_ptr()
    return cache, memory


def attention_call(device, model: Model, batch: int, queries: int, context: int):
    """(call, what it points to): `batch` sequences with their last `queries` positions."""
    pages_each = -(-context // PAGE_SIZE)
    cache, memory = random_pages(device, model, batch * pages_each)
    table = torch.randperm(batch * pages_each, device="cuda").to(torch.int32)
    lengths, order = integers([context] * batch), integers(range(batch))
    begins = integers([queries * i for i in range(batch + 1)])
    is_decode = queries == 1
    segments = struct(
        "segments",
        num_segments=batch,
        num_decode_segments=batch if is_decode else 0,
        query_begin=begins,
        context_length=lengths,
        table_row=order,
        page_table=table,
        page_table_stride=pages_each,
        num_table_rows=batch,
    )
    query, output = (library.bf16(batch * queries, model.query_width) for _ in range(2))
    call = device.call(
        "attention",
        rows=rows(batch * queries, batch if is_decode else 0),
        segments=segments,
        num_heads=model.num_heads,
        scale=HEAD_DIM**-0.5,
        query=query,
        cache=cache,
        output=output,
    )
    return call, [cache, memory, table, lengths, order, begins, query, output]


def attention(device, model: Model, batch: int, queries: int, context: int) -> Case:
    call, keep = attention_call(device, model, batch, queries, context)
    heads = (model.num_heads, model.num_kv_heads)
    size = batch * (4.0 * context * model.num_kv_heads + 4 * queries * model.num_heads) * HEAD_DIM
    pairs = context if queries == 1 else queries * (context - (queries - 1) / 2)
    flops = 4.0 * batch * pairs * model.num_heads * HEAD_DIM
    peer = Library(
        "scaled_dot_product_attention", [library.attention(*heads, batch, queries, context)]
    )
    shape = f"{heads[0]}/{heads[1]} heads, context {context}"
    bound = READ if queries == 1 else PRODUCT
    return Case("attention", shape, batch * queries, size, [call], flops, bound, peer, keep)


def floats(num_rows: int, value: float) -> torch.Tensor:
    return torch.full((num_rows,), value, device="cuda")


def sampling_fields(num_rows: int, kind: str) -> dict:
    wanted = SAMPLING_KINDS[kind]
    none = integers([-1] * num_rows)
    return {
        "temperature": floats(num_rows, wanted["temperature"]),
        "top_p": floats(num_rows, wanted.get("top_p", 1.0)),
        "min_p": floats(num_rows, 0.0),
        "top_k": integers([wanted.get("top_k", 0)] * num_rows),
        "repetition_penalty": floats(num_rows, 1.0),
        "frequency_penalty": floats(num_rows, 0.0),
        "presence_penalty": floats(num_rows, 0.0),
        "seed": torch.arange(num_rows, device="cuda"),
        "position": integers(range(num_rows)),
        "count_row": none,
        "mask_row": none,
        "num_logprobs": none,
        "bias_begin": integers([0] * (num_rows + 1)),
        "token_ids": integers([0] * num_rows),
        "is_finite": integers([0] * num_rows),
    }


def sample(device: KernelDevice, model: Model, num_rows: int, kind: str) -> Case:
    vocab = model.vocab_size
    size = 4 * num_rows * vocab
    fields, calls, keep = sampling_fields(num_rows, kind), [], []
    for _ in range(min(48, max(1, -(-300_000_000 // size)))):
        logits = 3 * torch.randn(num_rows, vocab, device="cuda")
        keep.append(logits)
        shape = {"num_rows": num_rows, "vocab_size": vocab}
        calls.append(device.call("sample", **shape, **fields, logits=logits))
    peer = None
    if kind == "greedy":
        peer = Library("argmax", [lambda each=each: each.argmax(-1) for each in keep])
    keep.append(fields)
    return Case("sample", f"{kind}, {vocab}", num_rows, size, calls, 0, READ, peer, keep)

"""Attention over pages, and sampling."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NotRequired, TypedDict

import torch

from glm_engine.verify.device import BF16, FP8
from tools.bench.kernels import library
from tools.bench.kernels.case import BF16_PRODUCT, READ, Call, Case, Library, num_sets
from tools.bench.kernels.device import ELEMENT_BYTES, KernelDevice, struct
from tools.bench.kernels.models import HEAD_DIM, PAGE_SIZE, Model

MAX_PAGE_SETS = 600
MOST_DECODE_QUERIES = 8
SAMPLED_BYTES = 300_000_000
MAX_LOGIT_SETS = 48


class Sampled(TypedDict):
    """How tokens are drawn."""

    temperature: float
    top_p: NotRequired[float]
    top_k: NotRequired[int]


SAMPLING_KINDS: dict[str, Sampled] = {
    "greedy": {"temperature": 0.0},
    "drawn": {"temperature": 1.0},
    "top_p 0.95": {"temperature": 0.7, "top_p": 0.95},
    "top_k 50": {"temperature": 1.0, "top_k": 50},
}

SAMPLING_NONE = ("count_row", "mask_row", "forced_token", "num_logprobs")
SAMPLING_ZEROS = ("row_offset", "input_ids", "bias_begin", "bias_end", "token_ids", "is_finite")


def integers(values: Iterable[int]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int32, device="cuda")


@dataclass(frozen=True)
class Attended:
    """`batch` sequences of `context` positions, of which the last `queries` are asked for: as
    decode rows where they are few, as drafts make them."""

    model: Model
    batch: int
    queries: int
    context: int
    dtype: int = BF16

    @property
    def is_decode(self) -> bool:
        return self.queries <= MOST_DECODE_QUERIES

    def decode_segments(self) -> dict[str, torch.Tensor]:
        """A segment a row: the rows of a sequence follow each other."""
        first, rows = self.context - self.queries + 1, range(self.batch * self.queries)
        return {
            "query_begin": integers(range(len(rows) + 1)),
            "context_length": integers(first + row % self.queries for row in rows),
            "table_row": integers(row // self.queries for row in rows),
        }

    def prompt_segments(self) -> dict[str, torch.Tensor]:
        return {
            "query_begin": integers(self.queries * i for i in range(self.batch + 1)),
            "context_length": integers([self.context] * self.batch),
            "table_row": integers(range(self.batch)),
        }

    @property
    def pages_each(self) -> int:
        return -(-self.context // PAGE_SIZE)

    @property
    def cache_bytes(self) -> float:
        width = 2 * self.model.num_kv_heads * HEAD_DIM * ELEMENT_BYTES[self.dtype]
        return float(self.batch * self.context * width)

    @property
    def num_bytes(self) -> float:
        return self.cache_bytes + 4.0 * self.batch * self.queries * self.model.query_width

    @property
    def num_flops(self) -> float:
        pairs = self.queries * (self.context - (self.queries - 1) / 2)
        return 4.0 * self.batch * pairs * self.model.query_width

    @property
    def num_sets(self) -> int:
        return num_sets(self.cache_bytes, MAX_PAGE_SETS)

    def shape(self) -> str:
        heads = f"{self.model.num_heads}/{self.model.num_kv_heads} heads"
        return f"{heads}, context {self.context}" + (", FP8 cache" if self.dtype == FP8 else "")


def attention_calls(
    device: KernelDevice, work: Attended
) -> tuple[list[Call], torch.Tensor, object]:
    """(a call for each set of pages, their memory, what else it points to)."""
    num_pages = work.num_sets * work.batch * work.pages_each
    cache, memory = device.kv_cache(work.model, num_pages, work.dtype)
    num_rows = work.batch * work.queries
    pages = torch.randperm(num_pages, device="cuda").to(torch.int32)
    rows = work.decode_segments() if work.is_decode else work.prompt_segments()
    count = len(rows["table_row"])
    query, output = (library.bf16(num_rows, work.model.query_width) for _ in range(2))
    segments = {
        **rows,
        "num_segments": count,
        "num_decode_segments": count if work.is_decode else 0,
        "num_table_rows": work.batch,
        "page_table_stride": work.pages_each,
        "rows_per_sequence": work.queries if work.is_decode else 1,
    }
    calls: list[Call] = [
        device.call(
            "attention",
            num_tokens=num_rows,
            num_heads=work.model.num_heads,
            scale=HEAD_DIM**-0.5,
            query=query,
            output=output,
            cache=cache,
            segments=struct("segments", **segments, page_table=table),
        )
        for table in pages.view(work.num_sets, -1)
    ]
    return calls, memory, (pages, rows)


def attention_beside(work: Attended, memory: torch.Tensor) -> Library:
    """Over the memory of the pages, read as contiguous keys and values; over as much again in
    BF16 where the pages hold FP8."""
    model = work.model
    name = "scaled_dot_product_attention, no pages"
    if work.dtype == FP8:
        name, memory = f"{name}, BF16", library.bf16(memory.numel())
    query = library.bf16(work.batch, model.num_heads, work.queries, HEAD_DIM)
    shape = (work.num_sets, work.batch, model.num_kv_heads, work.context, HEAD_DIM)
    keys, values = memory[: 2 * math.prod(shape)].view(2, *shape)
    return Library(
        name, [library.attention(query, *pair) for pair in zip(keys, values, strict=True)]
    )


def attention(device: KernelDevice, work: Attended) -> Case:
    calls, memory, rest = attention_calls(device, work)
    return Case(
        "attention",
        work.shape(),
        work.batch * work.queries,
        work.num_bytes,
        calls,
        work.num_flops,
        READ if work.is_decode else BF16_PRODUCT,
        attention_beside(work, memory),
        [memory, rest],
    )


def floats(num_rows: int, value: float) -> torch.Tensor:
    return torch.full((num_rows,), value, device="cuda")


def sampling_fields(num_rows: int, kind: str) -> dict[str, torch.Tensor]:
    wanted = SAMPLING_KINDS[kind]
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
        **{name: integers([-1] * num_rows) for name in SAMPLING_NONE},
        **{name: integers([0] * num_rows) for name in SAMPLING_ZEROS},
    }


def sampling_beside(kind: str, logits: Sequence[torch.Tensor]) -> Library | None:
    if kind == "greedy":
        return Library("argmax", [partial(each.argmax, -1) for each in logits])
    if "top_k" in SAMPLING_KINDS[kind]:
        count = SAMPLING_KINDS[kind]["top_k"]
        return Library("topk alone", [partial(each.topk, count) for each in logits])
    return None


def sample(device: KernelDevice, model: Model, num_rows: int, kind: str) -> Case:
    vocab, fields = model.vocab_size, sampling_fields(num_rows, kind)
    size = 4 * num_rows * vocab
    num_logits = min(MAX_LOGIT_SETS, -(-SAMPLED_BYTES // size))
    logits = [3 * torch.randn(num_rows, vocab, device="cuda") for _ in range(num_logits)]
    calls = [
        device.call("sample", num_rows=num_rows, vocab_size=vocab, logits=each, **fields)
        for each in logits
    ]
    peer = sampling_beside(kind, logits)
    return Case("sample", f"{kind}, {vocab}", num_rows, size, calls, 0, READ, peer, logits)

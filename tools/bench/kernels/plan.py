"""What the table holds: operations, and functions that build their cases."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tools.bench.kernels import (
    expert_cases,
    product_cases,
    row_cases,
    sequence_cases,
    small_cases,
)
from tools.bench.kernels.case import Case
from tools.bench.kernels.device import KernelDevice
from tools.bench.kernels.models import (
    BATCHES,
    CONTEXTS,
    DECODE_TOKENS,
    DRAFTED_CONTEXT,
    EXPERT_TOKENS,
    MODELS,
    PREFILL_TOKENS,
    PRODUCT_TOKENS,
    Model,
)
from tools.bench.kernels.sequence_cases import Attended
from tools.bindings.backend import BF16, FP8

ROW_OPERATIONS = (
    "embed",
    "reduce_add_norm_quantise",
    "quantise",
    "swiglu_quantise",
    "norm_rope_store",
)
ALL_TOKENS = (*DECODE_TOKENS, PREFILL_TOKENS)
BF16_LAYERS = ("qkv", "shared down")
BF16_TOKENS = (1, 64, PREFILL_TOKENS)


@dataclass(frozen=True)
class Planned:
    """A line to be measured; `detail` is what tells it from the others before it is built.
    Lines of prefill rows come last: the clock is down for a while after them."""

    model: str
    operation: str
    detail: str
    build: Callable[[], Case]
    is_prefill: bool = False


def is_decode(num_tokens: int) -> bool:
    return num_tokens < PREFILL_TOKENS


def rows(device: KernelDevice, model: Model) -> Iterator[Planned]:
    for name in ROW_OPERATIONS:
        function = getattr(row_cases, name)
        for count in ALL_TOKENS:
            build = partial(function, device, model, count, is_decode(count))
            yield Planned(model.name, name, f"{count} tokens", build, not is_decode(count))


def linear_layers(device: KernelDevice, model: Model) -> Iterator[Planned]:
    counts: Sequence[int] = (*PRODUCT_TOKENS, PREFILL_TOKENS)
    wanted = [(layer, FP8, counts) for layer in product_cases.layers_of(model)]
    wanted += [(layer, BF16, BF16_TOKENS) for layer in BF16_LAYERS]
    for layer, dtype, counts in wanted:
        for count in counts:
            given = (device, model, count, is_decode(count), layer, dtype)
            detail = f"{layer} {product_cases.NAMES[dtype]}, {count} tokens"
            build = partial(product_cases.linear, *given)
            yield Planned(model.name, "linear", detail, build, not is_decode(count))


def products(device: KernelDevice, model: Model) -> Iterator[Planned]:
    yield from linear_layers(device, model)
    for count in (*EXPERT_TOKENS, PREFILL_TOKENS):
        build = partial(expert_cases.experts, device, model, count, is_decode(count))
        detail = f"{count} tokens"
        yield Planned(model.name, "experts", detail, build, not is_decode(count))
    for count in (*DECODE_TOKENS, PREFILL_TOKENS):
        build = partial(product_cases.route, device, model, count)
        yield Planned(model.name, "route", f"{count} tokens", build, not is_decode(count))
    for count in DECODE_TOKENS:
        build = partial(product_cases.logits, device, model, count)
        yield Planned(model.name, "logits", f"{count} rows", build)


def attention(device: KernelDevice, model: Model) -> Iterator[Planned]:
    asked = [
        Attended(model, batch, 1, context, dtype)
        for dtype in (BF16, FP8)
        for context in CONTEXTS
        for batch in BATCHES
    ]
    asked += [
        Attended(model, 16, queries, DRAFTED_CONTEXT, dtype)
        for dtype in (BF16, FP8)
        for queries in (1, 2)
    ]
    asked += [Attended(model, 1, PREFILL_TOKENS, PREFILL_TOKENS, dtype) for dtype in (BF16, FP8)]
    for work in asked:
        detail = f"{work.shape()}, batch {work.batch}, {work.queries} queries"
        build = partial(sequence_cases.attention, device, work)
        yield Planned(model.name, "attention", detail, build, not work.is_decode)


def of_vocabulary(device: KernelDevice, model: Model) -> Iterator[Planned]:
    """What depends on the size of the vocabulary alone."""
    for kind in sequence_cases.SAMPLING_KINDS:
        for count in DECODE_TOKENS:
            build = partial(sequence_cases.sample, device, model, count, kind)
            yield Planned(model.name, "sample", f"{kind}, {count} rows", build)
    for count in (DECODE_TOKENS[0], PREFILL_TOKENS):
        build = partial(small_cases.count_tokens, device, model, count)
        yield Planned(model.name, "count_tokens", f"{count} tokens", build)
    build = partial(small_cases.begin_step, device, DECODE_TOKENS[-1])
    yield Planned(model.name, "begin_step", f"{DECODE_TOKENS[-1]} rows", build)


def of_pages(device: KernelDevice, model: Model) -> Iterator[Planned]:
    build = partial(small_cases.copy_pages, device, model)
    yield Planned(model.name, "copy_pages", "", build)
    for name in ("save_pages", "restore_pages"):
        build = partial(small_cases.transfer_pages, device, model, name)
        yield Planned(model.name, name, "", build)
    for count in (DECODE_TOKENS[2], PREFILL_TOKENS):
        build = partial(small_cases.all_reduce, model, count)
        yield Planned(model.name, "all_reduce", f"{count} tokens", build)


def planned(device: KernelDevice, names: Sequence[str], only: Sequence[str]) -> list[Planned]:
    """Every line of the models named, of the operations in `only` or of all."""
    models = [MODELS[name] for name in names]
    lines = [
        line
        for model in models
        for part in (products, attention, rows)
        for line in part(device, model)
    ]
    for part in (of_vocabulary, of_pages):
        lines += part(device, models[0])
    wanted = [line for line in lines if not only or line.operation in only]
    return sorted(wanted, key=lambda line: line.is_prefill)

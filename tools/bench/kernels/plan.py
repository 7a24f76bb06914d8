"""What the table holds: operations, and functions that build their cases."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from glm_engine.verify.device import BF16, FP8
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


def line(
    model: Model,
    operation: str,
    detail: str,
    build: Callable[..., Case],
    *given: object,
    count: int = 0,
) -> Planned:
    """A line of `count` rows, whose case `build` makes of what is given."""
    return Planned(model.name, operation, detail, partial(build, *given), not is_decode(count))


def rows(device: KernelDevice, model: Model) -> Iterator[Planned]:
    for name in ROW_OPERATIONS:
        function = getattr(row_cases, name)
        for count in ALL_TOKENS:
            given = (device, model, count, is_decode(count))
            yield line(model, name, f"{count} tokens", function, *given, count=count)


def linear_layers(device: KernelDevice, model: Model) -> Iterator[Planned]:
    counts: Sequence[int] = (*PRODUCT_TOKENS, PREFILL_TOKENS)
    wanted = [(layer, FP8, counts) for layer in product_cases.layers_of(model)]
    wanted += [(layer, BF16, BF16_TOKENS) for layer in BF16_LAYERS]
    for layer, dtype, counts in wanted:
        for count in counts:
            given = (device, model, count, is_decode(count), layer, dtype)
            detail = f"{layer} {product_cases.NAMES[dtype]}, {count} tokens"
            yield line(model, "linear", detail, product_cases.linear, *given, count=count)


def products(device: KernelDevice, model: Model) -> Iterator[Planned]:
    yield from linear_layers(device, model)
    for count in (*EXPERT_TOKENS, PREFILL_TOKENS):
        given = (device, model, count, is_decode(count))
        yield line(model, "experts", f"{count} tokens", expert_cases.experts, *given, count=count)
    for count in (*DECODE_TOKENS, PREFILL_TOKENS):
        build = partial(product_cases.route, device, model)
        yield line(model, "route", f"{count} tokens", build, count, count=count)
    for count in DECODE_TOKENS:
        yield line(model, "logits", f"{count} rows", product_cases.logits, device, model, count)


def attention(device: KernelDevice, model: Model) -> Iterator[Planned]:
    types = (BF16, FP8)
    shapes = [
        *((batch, 1, context) for context in CONTEXTS for batch in BATCHES),
        *((16, queries, DRAFTED_CONTEXT) for queries in (1, 2)),
        (1, PREFILL_TOKENS, PREFILL_TOKENS),
    ]
    for work in (Attended(model, *shape, dtype) for dtype in types for shape in shapes):
        detail = f"{work.shape()}, batch {work.batch}, {work.queries} queries"
        given = (device, work)
        yield line(model, "attention", detail, sequence_cases.attention, *given, count=work.queries)


def of_vocabulary(device: KernelDevice, model: Model) -> Iterator[Planned]:
    """What depends on the size of the vocabulary alone."""
    for kind in sequence_cases.SAMPLING_KINDS:
        for count in DECODE_TOKENS:
            given = (device, model, count, kind)
            yield line(model, "sample", f"{kind}, {count} rows", sequence_cases.sample, *given)
    for count in (DECODE_TOKENS[0], PREFILL_TOKENS):
        build = partial(small_cases.count_tokens, device, model)
        yield line(model, "count_tokens", f"{count} tokens", build, count)
    most = DECODE_TOKENS[-1]
    yield line(model, "begin_step", f"{most} rows", small_cases.begin_step, device, most)


def of_pages(device: KernelDevice, model: Model) -> Iterator[Planned]:
    yield line(model, "copy_pages", "", small_cases.copy_pages, device, model)
    for name in ("save_pages", "restore_pages"):
        yield line(model, name, "", small_cases.transfer_pages, device, model, name)
    for count in (DECODE_TOKENS[2], PREFILL_TOKENS):
        yield line(model, "all_reduce", f"{count} tokens", small_cases.all_reduce, model, count)


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

"""What is asked of the kernels, and how far the lines of the table keep it."""

from collections.abc import Iterator, Sequence

from tools.bench.figures import Bound, Figure
from tools.bench.kernels.models import MODELS, PREFILL_TOKENS
from tools.bench.kernels.report import Line

EXPERTS_SHARE, EXPERTS_TOKENS = 90.0, (16, 256)
READ_RATIO, READ_TOKENS, READ_BYTES = 1.5, 64, 9.2e6
ATTENTION_SHARE, ATTENTION_WORK = 80.0, (64, "context 4096")
PREFILL_TERAFLOPS = 450.0
NOISE = 0.02
PLACEMENT = ("copy_pages", "save_pages", "restore_pages", "all_reduce")


def named(line: Line, *words: str) -> str:
    return ", ".join([f"{line.operation} {line.shape}", *words, line.model])


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def share_of(name: str, line: Line, limit: float) -> Figure:
    share = float("nan") if line.share is None else 100 * line.share
    return Figure(name, share, "%", Bound.AT_LEAST, limit, f"{line.microseconds:.1f} µs")


def experts(lines: Sequence[Line]) -> Iterator[Figure]:
    """Air's experts where uniform routing gives each 1 to 16 tokens."""
    model, (least, most) = MODELS["air"], EXPERTS_TOKENS
    for line in lines:
        is_asked = line.operation == "experts" and line.model == model.name
        if is_asked and least <= line.num_tokens <= most:
            each = line.num_tokens // EXPERTS_TOKENS[0]
            yield share_of(named(line, f"{counted(each, 'token')} an expert"), line, EXPERTS_SHARE)


def small_products(lines: Sequence[Line]) -> Iterator[Figure]:
    """FP8 products of decode rows beside a plain read of the same weights."""
    for line in lines:
        if line.operation != "linear" or line.read_us is None or " FP8 " not in line.shape:
            continue
        if line.num_tokens <= READ_TOKENS and weight_bytes(line) <= READ_BYTES:
            name = named(line, counted(line.num_tokens, "row"))
            ratio, note = line.microseconds / line.read_us, f"{line.microseconds:.2f} µs"
            note = f"{note}, plain read {line.read_us:.2f} µs"
            yield Figure(name, ratio, "reads", Bound.AT_MOST, READ_RATIO, note)


def weight_bytes(line: Line) -> int:
    """Of a linear layer whose shape ends in `rows x columns`, one byte a weight."""
    rows, columns = line.shape.split()[-1].split("x")
    return int(rows) * int(columns)


def attention(lines: Sequence[Line]) -> Iterator[Figure]:
    batch, context = ATTENTION_WORK
    for line in lines:
        if line.operation != "attention":
            continue
        if line.num_tokens == batch and line.shape.endswith(context):
            yield share_of(named(line, f"batch {batch}"), line, ATTENTION_SHARE)
        if line.num_tokens == PREFILL_TOKENS:
            rate = line.flops_per_second / 1e12
            name = named(line, f"prefill of {PREFILL_TOKENS}")
            yield Figure(name, rate, "TFLOP/s", Bound.AT_LEAST, PREFILL_TERAFLOPS)


def is_decode_beside_library(line: Line) -> bool:
    is_decode = line.num_tokens < PREFILL_TOKENS and line.operation not in PLACEMENT
    return is_decode and line.library_ratio is not None


def slower(lines: Sequence[Line]) -> list[Line]:
    """Decode lines behind the library by more than two measurements differ, the furthest first."""
    asked = [line for line in lines if is_decode_beside_library(line)]
    behind = [line for line in asked if line.library_ratio < 1 - NOISE]
    return sorted(behind, key=lambda line: line.library_ratio)


def beside_library(lines: Sequence[Line]) -> Figure:
    num_asked = sum(is_decode_beside_library(line) for line in lines)
    behind = slower(lines)
    name = f"lines of decode more than {100 * NOISE:.0f} % behind the library, of {num_asked}"
    note = "".join(f"the furthest: {behind_by(line)}" for line in behind[:1])
    return Figure(name, len(behind), "", Bound.AT_MOST, 0, note)


def behind_by(line: Line) -> str:
    exact = line.exact_ratio
    beside = "" if exact is None else f" ({exact:.2f} with exact accumulation)"
    return f"{named(line, counted(line.num_tokens, 'row'))}, ratio {line.library_ratio:.2f}{beside}"


def figures(lines: Sequence[Line]) -> list[Figure]:
    """Every figure that is asked for, as far as its line was measured."""
    parts = (experts, small_products, attention)
    return [*(figure for part in parts for figure in part(lines)), beside_library(lines)]

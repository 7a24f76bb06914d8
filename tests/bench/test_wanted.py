"""What is asked of the kernels: which lines count, and which keep their limit."""

import pytest

from tools.bench.kernels import report, wanted
from tools.bench.kernels.case import BF16_PRODUCT, CEILINGS, READ, Case

RATES = dict.fromkeys(CEILINGS, 1e12)
AIR, RANK = "GLM-4.5-Air", "GLM-4.7, one of 8"


def line(model, operation, shape, num_tokens, spent, **work) -> report.Line:
    sizes = {"num_bytes": 9e6, "num_flops": 0.0, "bound": READ} | work
    case = Case(operation, shape, num_tokens, calls=[], **sizes)
    return report.line_of(model, case, spent, "torch", RATES)


def kept(lines) -> list[bool]:
    return [figure.is_kept for figure in wanted.figures(lines)[:-1]]


@pytest.mark.parametrize(
    ("num_tokens", "microseconds", "verdicts"),
    [(1, 1.0, []), (16, 10.0, [True]), (256, 10.1, [False]), (8192, 1.0, [])],
)
def test_experts_of_one_to_sixteen_tokens(num_tokens, microseconds, verdicts):
    spent = report.Spent(microseconds)
    assert kept([line(AIR, "experts", "128 of 8x8", num_tokens, spent)]) == verdicts
    assert kept([line(RANK, "experts", "20 of 8x8", num_tokens, spent)]) == []


@pytest.mark.parametrize(
    ("shape", "num_tokens", "verdicts"),
    [
        ("output FP8 5120x1536", 1, [True]),
        ("output FP8 5120x1536", 64, [True]),
        ("output FP8 5120x1536", 256, []),
        ("qkv FP8 14336x4096", 1, []),
        ("qkv BF16 1792x1024", 1, []),
    ],
)
def test_small_products_beside_a_plain_read(shape, num_tokens, verdicts):
    within, beyond = report.Spent(3.0, None, 2.0), report.Spent(3.1, None, 2.0)
    assert kept([line(RANK, "linear", shape, num_tokens, within)]) == verdicts
    assert kept([line(RANK, "linear", shape, num_tokens, beyond)]) == [False] * len(verdicts)
    assert kept([line(RANK, "linear", shape, num_tokens, report.Spent(3.0))]) == []


def test_attention_of_decode_and_of_prefill():
    decode = line(AIR, "attention", "96/8 heads, context 4096", 64, report.Spent(11.0))
    short = line(AIR, "attention", "96/8 heads, context 1024", 64, report.Spent(11.0))
    coded = line(AIR, "attention", "96/8 heads, context 4096, FP8 cache", 64, report.Spent(11.0))
    work = {"num_flops": 4.6e9, "bound": BF16_PRODUCT}
    prefill = line(AIR, "attention", "96/8 heads, context 8192", 8192, report.Spent(10.0), **work)
    figures = wanted.figures([decode, short, coded, prefill])[:-1]
    assert [round(figure.value, 1) for figure in figures] == [81.8, 460.0]
    assert all(figure.is_kept for figure in figures)


def test_lines_behind_the_library_are_counted_and_named():
    lines = [
        line(RANK, "linear", "output FP8 5120x1536", 64, report.Spent(4.0, 3.0)),
        line(RANK, "linear", "output FP8 5120x1536", 16, report.Spent(3.0, 2.95)),
        line(RANK, "linear", "output FP8 5120x1536", 8192, report.Spent(4.0, 3.0)),
        line(AIR, "copy_pages", "256 pages", 0, report.Spent(4.0, 3.0)),
        line(AIR, "quantise", "4096", 1, report.Spent(4.0)),
    ]
    (figure,) = wanted.figures(lines)
    assert (figure.value, figure.is_kept) == (1, False)
    assert figure.name.endswith("of 2")
    assert figure.note.endswith("FP8 5120x1536, 64 rows, GLM-4.7, one of 8, ratio 0.75")
    assert wanted.figures(lines[1:])[0].is_kept


def test_the_limit_is_about_the_fast_library_and_the_exact_one_is_named():
    spent = report.Spent(4.0, 3.0, None, 6.0)
    (figure,) = wanted.figures([line(RANK, "linear", "output FP8 5120x1536", 256, spent)])
    assert (figure.value, figure.is_kept) == (1, False)
    assert figure.note.endswith("ratio 0.75 (1.50 with exact accumulation)")

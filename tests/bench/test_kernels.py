"""`python -m tools.bench.kernels` where there is no GPU: its rules, its plan, its files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import groups
from tools.bench.kernels import report, timing
from tools.bench.kernels.case import (
    CEILINGS,
    COPY,
    FP8_PRODUCT,
    MAX_SETS,
    READ,
    ROTATED_BYTES,
    Case,
    num_sets,
)

ROOT = Path(__file__).resolve().parents[2]
RATES = dict.fromkeys(CEILINGS, 1e12)
DESCRIBED = report.Described("python -m tools.bench.kernels", {"device": "none"}, RATES)


def test_without_a_gpu_it_says_so_in_one_line():
    groups.imported("torch")
    done = subprocess.run(
        [sys.executable, "-m", "tools.bench.kernels"],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("kernels: ")
    assert any(cause in line for cause in ("no NVIDIA driver", "no GPU", "is not built"))


@pytest.mark.parametrize("size", [1, 5_000_000, 7_864_320, 60_000_001, 4e9])
def test_sets_of_operands_rotate_over_more_than_the_cache(size):
    count = num_sets(size)
    assert 1 <= count <= MAX_SETS
    assert count == MAX_SETS or count * size >= ROTATED_BYTES
    assert count == 1 or (count - 1) * size < ROTATED_BYTES


@pytest.mark.parametrize("num_calls", [1, 7, 24, 80])
@pytest.mark.parametrize("first_us", [0.0, 3.0, 499.0, 1000.0, 50_000.0])
def test_graphs_hold_each_call_equally_often_and_stay_short(num_calls, first_us):
    repeats = timing.num_repeats(num_calls, first_us)
    assert repeats >= 1
    assert repeats == 1 or (repeats - 1) * num_calls < timing.MOST_CALLS
    assert repeats == 1 or (repeats - 1) * num_calls * first_us <= timing.GRAPH_US


@pytest.mark.parametrize(
    ("milliseconds", "num_replays"), [(0.1, 10), (7.0, 9), (30.0, 3), (900.0, 3)]
)
def test_the_median_leaves_out_the_first_replay_and_slow_ones_are_few(milliseconds, num_replays):
    times = iter([1e6, *[milliseconds] * num_replays])
    assert timing.median_us(lambda: next(times), 4) == pytest.approx(250 * milliseconds)
    assert next(times, None) is None


def line(bound: str, num_bytes: float, num_flops: float = 0.0) -> report.Line:
    case = Case("linear", "4x4", 3, num_bytes, [], num_flops, bound)
    return report.line_of("Air", case, report.Spent(10.0, 20.0, 5.0, 25.0), "_scaled_mm", RATES)


def test_shares_are_of_bytes_or_of_operations():
    assert line(READ, 5e6, 1e9).share == pytest.approx(0.5)
    assert line(FP8_PRODUCT, 5e6, 4e6).share == pytest.approx(0.4)
    cells = line(COPY, 5e6).cells()
    assert len(cells) == len(report.TITLES)
    times = ["5.00", "20.00", "2.00", "25.00", "2.50"]
    assert cells[4:] == ["10.00", "0.50", "", "copy", "50 %", *times, "_scaled_mm"]


def test_without_a_ceiling_there_is_no_share():
    case = Case("linear", "4x4", 3, 5e6, [], 0.0, READ)
    alone = report.line_of("Air", case, report.Spent(10.0), "", {**RATES, READ: None})
    assert alone.share is None
    assert alone.library_ratio is None
    assert alone.exact_ratio is None
    assert alone.cells()[4:] == ["10.00", "0.50", "", "read", "", "", "", "", "", "", ""]
    assert f"{CEILINGS[READ]}: failed" in report.ceiling_lines({READ: None})


def test_the_report_holds_each_line():
    content = report.as_dict(DESCRIBED, [line(READ, 5e6)] * 2)
    assert content["ceilings"] == RATES
    assert [one["share"] for one in content["lines"]] == pytest.approx([0.5, 0.5])
    assert [report.Line(**one) for one in content["lines"]] == [line(READ, 5e6)] * 2


def test_the_plan_names_each_line_once():
    groups.imported("torch")
    from tools.bench.kernels.models import MODELS
    from tools.bench.kernels.plan import planned

    lines = planned(None, list(MODELS), ())
    named = [(each.model, each.operation, each.detail) for each in lines]
    assert len(set(named)) == len(named)
    order = [each.is_prefill for each in lines]
    assert order == sorted(order)
    assert any(order)
    wanted = ("attention", "copy_pages", "count_tokens", "experts", "linear", "begin_step")
    assert {*wanted, "save_pages", "all_reduce"} <= {each.operation for each in lines}
    assert {each.operation for each in planned(None, ["air"], ("route",))} == {"route"}


def test_layers_of_equal_shape_are_measured_once():
    groups.imported("torch")
    from tools.bench.kernels.models import MODELS
    from tools.bench.kernels.product_cases import layer_shape, layers_of

    for model in MODELS.values():
        shapes = [layer_shape(model, layer) for layer in layers_of(model)]
        assert len(set(shapes)) == len(shapes)
    assert "dense down" in layers_of(MODELS["air"])
    assert "dense down" not in layers_of(MODELS["rank8"])


def test_the_plain_read_is_a_program_of_the_target():
    torch = groups.imported("torch")
    from tools.bench.kernels import plain_read

    if torch.version.cuda is None:
        pytest.skip("this PyTorch has no CUDA")
    cubin = plain_read.compiled(plain_read.SOURCE, "sm_90")
    assert cubin.startswith(b"\x7fELF")
    assert b"plain_read" in cubin


def test_bytes_and_operations_of_attention():
    groups.imported("torch")
    from glm_engine.verify.device import FP8
    from tools.bench.kernels.models import MODELS
    from tools.bench.kernels.sequence_cases import Attended

    decode = Attended(MODELS["air"], 2, 1, 1024)
    assert decode.cache_bytes == 2 * 1024 * 2 * 8 * 128 * 2
    assert Attended(MODELS["air"], 2, 1, 1024, FP8).cache_bytes == decode.cache_bytes / 2
    assert decode.num_flops == 4 * 2 * 1024 * 96 * 128
    whole = Attended(MODELS["rank8"], 1, 8, 8)
    assert whole.num_flops == 4 * (8 * 9 / 2) * 12 * 128


class Answering:
    """A device that runs no kernel and answers `num_answers` times."""

    def __init__(self, num_answers: int):
        self.num_answers = num_answers

    def microseconds(self, calls) -> float:
        return float(sum(call() for call in calls))

    def waited_microseconds(self, calls) -> float:
        return self.microseconds(calls)

    def is_lost(self) -> bool:
        self.num_answers -= 1
        return self.num_answers < 0


def refuse() -> float:
    raise RuntimeError("linear: expected 1, got 2\nmore")


def run_of(calls, num_answers: int, output: Path):
    """(Run, whether the device answered to the end) of one line for each call."""
    groups.imported("torch")
    from tools.bench.kernels.__main__ import Run
    from tools.bench.kernels.plan import Planned

    def build(call):
        return lambda: Case("linear", "4x4", 3, 5e6, [call])

    run = Run(Answering(num_answers), DESCRIBED, output)
    lines = [Planned("Air", "linear", f"line {i}", build(call)) for i, call in enumerate(calls)]
    return run, run.measure_all(lines, 60)


def test_a_line_that_fails_is_named_and_the_next_is_measured(tmp_path, capsys):
    run, answers = run_of([lambda: 10.0, refuse, lambda: 5.0], 9, tmp_path / "kernels.json")
    assert answers
    assert [each.microseconds for each in run.lines] == [10.0, 5.0]
    named = capsys.readouterr().err
    assert named == "kernels: Air linear line 1: RuntimeError: linear: expected 1, got 2\n"
    assert len(json.loads((tmp_path / "kernels.json").read_text())["lines"]) == 2


def test_a_lost_device_ends_the_run_and_keeps_its_lines(tmp_path, capsys):
    run, answers = run_of([lambda: 10.0, refuse, lambda: 5.0], 1, tmp_path / "kernels.json")
    assert not answers
    assert len(run.lines) == 1
    assert "the device was lost in linear line 1" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "kernels.json").read_text())["lines"]) == 1

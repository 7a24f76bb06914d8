"""The page of a GPU from files: what is read, asked, written, and put into READMEs."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from tests import groups
from tools.bench import machine
from tools.bench.cuda import asked, readmes, results
from tools.bench.cuda.__main__ import SECTIONS, main, write_page
from tools.bench.cuda.results import ResultsError
from tools.bench.kernels import report as kernel_report
from tools.bench.kernels.case import CEILINGS, FP8_PRODUCT, SUSTAINED, Case

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks"
RATES = dict.fromkeys(CEILINGS, 4e12) | {FP8_PRODUCT: 1000e12, SUSTAINED: 900e12}
ENGINE = {"device": "NVIDIA H200", "num_layers": 46, "weight_bytes": 8_000_000_000}


def point(batch: int, context: int, share: float) -> dict:
    operations = [{"name": "experts", "calls": 45.0, "ms": 2.0}]
    operations.append({"name": "linear qkv", "calls": 46.0, "ms": 1.0})
    return {
        "batch": batch,
        "context": context,
        "tokens_per_second": 100.0 * batch,
        "step_ms": 10.0,
        "device_ms": 9.9,
        "bytes": 4e10,
        "floor_ms": 10 * share,
        "share_of_floor": share,
        "operations": operations,
    }


def prefilled(tokens: int, seconds: float) -> dict:
    rates = {"tokens_per_second": tokens / seconds, "teraflops_per_second": 600.0}
    return {"tokens": tokens, "seconds": seconds, "device_seconds": seconds, **rates}


def bench_report(decode: list[dict], prefill: list[dict], **fields) -> dict:
    return {
        "command": "glm bench --device cuda --output /some/where/air-short.json",
        "date": "2026-01-02T03:04:05+00:00",
        "python": "3.12.3",
        "cores": 16,
        "model": "glm-4.5-air-fp8",
        "engine": ENGINE,
        "load_seconds": 0.5,
        "read_bytes_per_second": 4.5e12,
        "decode": decode,
        "prefill": prefill,
        **fields,
    }


def kernel_lines() -> list[kernel_report.Line]:
    made = (
        ("experts", "128 of 4096x1408", 64),
        ("linear", "qkv FP8 14336x4096", 1),
        ("attention", "96/8 heads, context 4096", 64),
        ("attention", "96/8 heads, context 4096, FP8 cache", 64),
        ("attention", "96/8 heads, context 8192", 8192),
        ("quantise", "4096", 1),
    )
    return [
        kernel_report.line_of(
            "GLM-4.5-Air",
            Case(operation, shape, tokens, 4e7, [], 1e9),
            kernel_report.Spent(10.0, 20.0),
            "torch",
            RATES,
        )
        for operation, shape, tokens in made
    ]


def kernel_table() -> dict:
    machine = {"device": "NVIDIA H200", "driver": "580", "cuda": "13.0", "torch": "2.11"}
    lines = [asdict(line) for line in kernel_lines()]
    command = "python -m tools.bench.kernels --output /some/where/kernels"
    return {"command": command, "machine": machine, "ceilings": RATES, "lines": lines}


@pytest.fixture
def measured(tmp_path) -> Path:
    folder = tmp_path / "measured"
    (folder / "kernels").mkdir(parents=True)
    short = [point(16, 128, 0.9), point(1, 128, 0.59)]
    longer = [point(1, 1024, 0.57), {"batch": 64, "context": 8192, "skipped": "needs pages"}]
    files = {
        "air-short.json": bench_report(short, [prefilled(8192, 0.5), prefilled(1024, 0.1)]),
        "air-long.json": bench_report(longer, [prefilled(8192, 0.4)]),
        "loading-1.json": bench_report([], [], model="/some/where/air4"),
        "kernels/kernels.json": kernel_table(),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def test_points_of_all_files_are_sorted_and_the_fastest_prefill_counts(measured):
    found, files = results.read([measured])
    assert [(row["context"], row["batch"]) for row in found.decode] == [
        (128, 1),
        (128, 16),
        (1024, 1),
    ]
    assert [(row["tokens"], row["seconds"]) for row in found.prefill] == [(1024, 0.1), (8192, 0.4)]
    assert list(files) == ["air-long.json", "air-short.json", "loading-1.json", "kernels.json"]
    assert found.first["command"].endswith("--output air-short.json")
    assert len(found.kernels.lines) == len(kernel_lines())


def test_the_same_name_twice_and_no_report_are_refused(measured, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ResultsError, match="no air"):
        results.read([tmp_path / "empty"])
    (measured / "again").mkdir()
    (measured / "again" / "air-short.json").write_text((measured / "air-short.json").read_text())
    with pytest.raises(ResultsError, match="twice"):
        results.read([measured])
    (measured / "again" / "air-short.json").write_text("{")
    (measured / "air-short.json").unlink()
    with pytest.raises(ResultsError, match="air-short"):
        results.read([measured])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"date": "2026-01-02T00:51:08+00:00"}, "are from two runs"),
        ({"cores": 17}, "is from another machine"),
        ({"engine": {**ENGINE, "device": "NVIDIA H100"}}, "is from another machine"),
    ],
)
def test_a_report_of_another_run_is_refused(measured, fields, said):
    report = bench_report([], [], **fields)
    (measured / "loading-2.json").write_text(json.dumps(report))
    with pytest.raises(ResultsError, match=f"loading-2.json .*{said}"):
        results.read([measured])


def test_the_reports_of_the_page_are_of_one_run(tmp_path):
    for path in BENCHMARKS.glob("h200-*.json"):
        shutil.copy(path, tmp_path / path.name.removeprefix("h200-"))
    found, _ = results.read([tmp_path])
    figures = asked.figures(found)
    kept = f"{sum(figure.is_kept for figure in figures)} of {len(figures)} limits are kept"
    assert kept in (BENCHMARKS / "h200.md").read_text(encoding="utf-8")


def test_without_matplotlib_nothing_is_written(measured, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "is_installed", lambda _: False)
    output = tmp_path / "page"
    done = CliRunner().invoke(main, [str(measured), "--commit", "x", "--output", str(output)])
    assert done.exit_code == 1
    assert done.output.strip().endswith("run with `tools/develop --with oracle`")
    assert not output.exists()


POINTS = [(1, 128, 60), (256, 128, 76), (64, 1024, 78), (16, 8192, 76)]
UNASKED = [(256, 1024, None), (64, 8192, None), (3, 128, None), (1, 300, None)]


@pytest.mark.parametrize(("batch", "context", "wanted"), [*POINTS, *UNASKED])
def test_shares_asked_of_a_point(batch, context, wanted):
    assert asked.asked_share({"batch": batch, "context": context}) == wanted


def test_each_limit_has_a_figure(measured):
    figures = {figure.name: figure for figure in asked.figures(results.read([measured])[0])}
    values = {name: (round(figure.value, 2), figure.is_kept) for name, figure in figures.items()}
    assert values["decode, batch 1, context 128: floor over step"] == (59.0, False)
    assert values["decode, batch 1, context 1,024: floor over step"] == (57.0, True)
    assert values["decode, batch 1, context 1,024: lower than at 128"] == (2.0, True)
    assert values["step time beside device time, the furthest of all points"] == (1.01, True)
    assert values["prefill of 8,192 tokens beside an FP8 product"] == (60.0, True)
    note = figures["prefill of 8,192 tokens beside an FP8 product"].note
    assert note == "600 of 1,000 TFLOP/s; 67 % of 900 after a second of load"
    assert values["loading a checkpoint"] == (16.0, True)
    assert any(name.startswith("experts") for name in values)


def test_the_page_names_files_commit_figures_and_what_bounds_them(measured, tmp_path):
    groups.imported("matplotlib")
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "h200-bounds.md").write_text("# Bounds\n")
    (folder / "h200-air-before.json").write_text("{}")
    made = write_page(folder, "h200", "0123abcd", [measured])
    text = (folder / "h200.md").read_text()
    for words in (
        "| commit | 0123abcd |",
        "| date | 2026-01-02 03:04:05 UTC |",
        "[h200-air-short.json](h200-air-short.json)",
        "| decode, batch 1, context 128: floor over step | 59 % | ≥ 60 % | missed |",
        "| 128 | 16 | 1,600 | 10.00 | 9.90 | 40.00 | 9.00 | **90.0 %** | 80 % | 88 % | 21.00 |",
        "![Decode on NVIDIA H200](h200-decode.png)",
        "(h200-bounds.md)",
        "| loading-1.json | 8.0 | 0.50 | 16.0 |",
    ):
        assert words in text
    assert "/some/where" not in text
    for picture in ("h200-decode", "h200-operations"):
        content = (folder / f"{picture}.svg").read_bytes()
        ElementTree.fromstring(content)
        assert b"<!--" not in content
        assert (folder / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
    assert len(made.figures) > 5
    assert not (folder / "h200-air-before.json").exists()
    for name in ("kernels", "loading-1", "air-short"):
        assert "/some/where" not in (folder / f"h200-{name}.json").read_text()
    assert (folder / "h200-kernels.md").read_text().count("| GLM-4.5-Air |") == len(kernel_lines())


def test_the_pictures_have_the_same_bytes_each_time(measured, tmp_path):
    groups.imported("matplotlib")
    for name in ("one", "two"):
        write_page(tmp_path / name, "h200", "0123abcd", [measured])
    for picture in ("h200-decode.svg", "h200-operations.svg"):
        first, second = ((tmp_path / name / picture).read_bytes() for name in ("one", "two"))
        assert first == second


def test_a_section_is_replaced_and_the_next_stays():
    text = "# T\n\n## A\n\nold\n\n### deeper\n\nold\n\n## B\n\nkept\n"
    renewed = readmes.replaced(text, "## A", ["new"])
    assert renewed == "# T\n\n## A\n\nnew\n\n## B\n\nkept\n"
    assert readmes.replaced(renewed, "## A", ["new"]) == renewed
    assert readmes.replaced("## A\n\nold\n", "## A", ["new"]) == "## A\n\nnew\n"
    with pytest.raises(ResultsError, match="expected the line"):
        readmes.replaced(text, "## C", ["new"])


def test_sections_of_readmes(measured, tmp_path):
    groups.imported("matplotlib")
    made = write_page(tmp_path / "page", "h200", "0123abcd", [measured])
    kernels = readmes.of_kernels(made, "../docs/benchmarks")
    assert sum(line.startswith("| attention |") for line in kernels) == 2
    assert not any(line.startswith("| quantise |") for line in kernels)


def test_the_readmes_have_the_section():
    for path in SECTIONS:
        assert readmes.HEADING in (ROOT / path).read_text(encoding="utf-8").splitlines()


def test_the_command_says_what_is_missed(measured, tmp_path):
    groups.imported("matplotlib")
    output = tmp_path / "page"
    given = [str(measured), "--commit", "0123abcd", "--output", str(output)]
    done = CliRunner().invoke(main, given)
    assert done.exit_code == 0, done.output
    assert "missed: decode, batch 1, context 128: floor over step: 59 %" in done.output
    assert "limits are kept" in done.output
    refused = CliRunner().invoke(main, [str(tmp_path / "page"), "--commit", "x"])
    assert refused.exit_code == 1
    assert "no air-*.json" in refused.output

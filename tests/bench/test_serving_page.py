"""The page of serving: made of reports of `glm load`, with limits, rates and files."""

import json
import math

from click.testing import CliRunner

from glm_engine.load.figures import make_figures
from glm_engine.load.records import Outcome
from glm_engine.load.report import make_report
from tests import groups
from tests.python.load.test_figures import record
from tools.bench.figures import Section
from tools.bench.report import as_json
from tools.bench.serving.page import main

WORKLOAD = {
    "prompts": "fixed:10",
    "outputs": "fixed:3",
    "shared_prefix": 0,
    "burstiness": 1.0,
    "max_concurrency": 8,
}
SERVER = {"cpu_us_per_token": 300.0, "http_cpu_us_per_token": 60.0}
TARGET = {"url": "there", "model": "small", "endpoint": "completions", "device": "NVIDIA H200"}


def report_of(rates=(math.inf,), ttft=0.2, server=None):
    points = []
    for rate in rates:
        found = make_figures(rate, [Outcome(100.0, [record(ttft=ttft)], 0.1)], {"ttft": 1.0})
        points.append({**found, "num_asked": 1, "server": server})
    return make_report(TARGET, WORKLOAD, 1, points)


def written(folder, **reports):
    folder.mkdir()
    for name, content in reports.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return folder


def acceptance(command="python -m tools.bench.serving --output /somewhere/cuda.json"):
    rounds = {"server": report_of(server=SERVER), "engine": report_of()}
    series = {side: [made["points"][0]] * 2 for side, made in rounds.items()}
    section = Section("serving", "Serving", "", (), series)
    return json.loads(as_json(command, {"commit": "unknown"}, [section]))


def run(folder, output):
    arguments = [str(folder), "--commit", "abc", "--name", "serving-x", "--output", str(output)]
    return CliRunner().invoke(main, arguments)


def test_the_page_holds_limits_rates_picture_and_files(tmp_path):
    groups.imported("matplotlib")
    folder = written(
        tmp_path / "measured",
        engine=report_of(server={"cpu_us_per_token": 250.0}),
        one=report_of(ttft=0.21, server=SERVER),
        four=report_of(ttft=0.4, server=SERVER),
        rates=report_of((2.0, math.inf), server=SERVER),
        **{"acceptance-cuda": acceptance()},
    )
    output = tmp_path / "page"
    result = run(folder, output)
    assert result.exit_code == 0, result.output
    text = (output / "serving-x.md").read_text("utf-8")
    assert text.startswith("# Serving on one NVIDIA H200\n")
    rows = [line for line in text.splitlines() if line.startswith("| server over engine")]
    assert [row.split("|")[4].strip() for row in rows] == ["kept", "missed", "kept"]
    assert "All at once, medians of 2 rounds by turns:" in text
    assert "`python -m tools.bench.serving --output cuda.json`" in text
    kept = json.loads((output / "serving-x-acceptance-cuda.json").read_text("utf-8"))
    assert kept["machine"]["commit"] == "abc"
    assert "| 2 | 1 of 1 | 5 | 200.0, 200.0 | 200.0, 200.0 |" in text
    assert "| inf | 1 of 1 |" in text
    assert "![Rates](serving-x-rates.svg)" in text
    for name in ("engine", "one", "four", "rates"):
        assert json.loads((output / f"serving-x-{name}.json").read_text())["seed"] == 1
    assert (output / "serving-x-rates.png").stat().st_size > 1000


def test_without_rates_there_is_no_picture(tmp_path):
    folder = written(tmp_path / "measured", engine=report_of(), one=report_of(server=SERVER))
    result = run(folder, tmp_path / "page")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "page" / "serving-x.md").read_text("utf-8")
    assert "Four client processes" not in text
    assert "request rate" not in text


def test_a_report_that_is_not_there_is_named(tmp_path):
    folder = written(tmp_path / "measured", engine=report_of())
    result = run(folder, tmp_path / "page")
    assert result.exit_code == 1
    assert "one.json: cannot be read" in result.output

"""`glm bench`: costs of published shapes, true passes on the CPU, reports shown and drawn."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from glm_engine.bench.costs import SYNTHETIC, Costs, config_path
from glm_engine.bench.steps import ATTEMPTS, Decoding
from glm_engine.cli.command_line import main
from glm_engine.commands.bench import command
from glm_engine.core import console
from glm_engine.core.engine import Engine
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from glm_engine.core.layout import CONFIGS
from glm_engine.core.requests import Sampling
from tests.python.commands.running import (
    ENVIRONMENT,
    GLM,
    ROOT,
    glm,
    glm_json,
    refused,
)

CAPITALS = ROOT / "checkpoints" / "capitals"
SMALL = ["--batch", "1,2", "--context", "16", "--prefill", "24", "--steps", "6"]
LATE_SECONDS = 0.02


def costs_of(name: str, num_layers: int, kv_bytes: int) -> Costs:
    return Costs(read_object(config_path(name)), num_layers, kv_bytes)


def test_a_huge_batch_reads_every_weight():
    costs = costs_of("glm-4.7-fp8", 92, 368 * 1024)
    untouched = 151552 * 5120 * 2
    every = costs.weight_bytes(100_000) - 100_000 * 5120 * 2 + untouched
    assert every == pytest.approx(354_902_011_520, rel=2e-4)


def test_a_huge_batch_reads_every_weight_of_the_prediction_layer():
    costs = costs_of("glm-4.7-fp8", 92, 0)
    planned = glm_json("plan", "glm-4.7-fp8", "--device-memory", "141GB")
    layer = planned["checkpoint_bytes_with_nextn"] - planned["checkpoint_bytes"]
    head = 151552 * 5120 * 2
    assert costs.prediction_bytes(100_000) == pytest.approx(layer + head, rel=2e-4)
    assert costs.prediction_bytes(1) < costs.prediction_bytes(8) < layer


def test_the_parameters_active_for_a_token():
    costs = costs_of("glm-4.7-fp8", 92, 368 * 1024)
    head = 151552 * 5120
    assert 31e9 < costs.active_parameters() + 2 * head < 34e9


def test_expected_experts_of_published_batches():
    costs = costs_of("glm-4.7-fp8", 92, 0)
    assert costs.experts_hit(1) == pytest.approx(8)
    assert round(costs.experts_hit(8)) == 54
    assert round(costs.experts_hit(64)) == 154


def test_a_folder_without_a_config_is_said_to_be_one(tmp_path):
    with pytest.raises(BadInputError) as caught:
        config_path(tmp_path)
    assert str(caught.value) == f"{tmp_path}: not a checkpoint: this folder has no config.json"


def test_a_config_of_the_package_is_found_by_its_name():
    assert SYNTHETIC == ("glm-4.5-air-fp8", "glm-4.7-fp8")
    for name in SYNTHETIC:
        assert config_path(name) == CONFIGS / f"{name}.json"
    with pytest.raises(BadInputError, match="expected the path to a config"):
        config_path("no-such-model")


@pytest.mark.parametrize(
    "source", [["--model", CAPITALS], ["--synthetic", CAPITALS / "config.json", "--layers", "2"]]
)
def test_figures_of_true_passes(source, tmp_path):
    target = tmp_path / "reports" / "bench.json"
    report = glm_json("bench", "--device", "cpu", *source, *SMALL, "--output", target)
    assert json.loads(target.read_text()) == report
    assert [(row["batch"], row["context"]) for row in report["decode"]] == [(1, 16), (2, 16)]
    for row in report["decode"]:
        assert row["tokens_per_second"] == pytest.approx(row["batch"] / row["step_ms"] * 1e3)
        assert row["device_ms"] <= row["step_ms"] * 1.5
        assert row["share_of_floor"] == pytest.approx(row["floor_ms"] / row["step_ms"])
        assert 0 < row["kv_utilisation"] <= 1
        assert {"attention", "experts", "linear qkv"} <= {one["name"] for one in row["operations"]}
    assert report["prefill"][0]["tokens"] == 24
    assert report["prefill"][0]["tokens_per_second"] > 0
    calls = {one["name"]: one["calls"] for one in report["prefill"][0]["operations"]}
    assert calls["attention"] == report["engine"]["num_layers"]


def test_tokens_are_those_that_came_and_not_rows():
    drafts = ["--speculate", "lookup:3", "--acceptance-length", "2"]
    source = ["--synthetic", CAPITALS / "config.json", "--layers", "2", "--seed", "3"]
    asked = ["--batch", "1,2", "--context", "16", "--prefill", "24", "--steps", "60"]
    report = glm_json("bench", "--device", "cpu", *source, *asked, *drafts, "--no-profile")
    assert report["engine"]["max_draft_tokens"] == 3
    for row in report["decode"]:
        assert row["rows_per_step"] == 4 * row["batch"]
        assert row["mean_acceptance_length"] == pytest.approx(2, abs=0.5)
        tokens_per_step = row["tokens_per_second"] * row["step_ms"] / 1e3
        expected = row["mean_acceptance_length"] * row["batch"]
        assert tokens_per_step == pytest.approx(expected, rel=0.25)
        assert row["mean_context"] > 16 + 30 * 1.5
    plain = glm_json("bench", "--device", "cpu", *source, *asked, "--no-profile")
    assert "mean_acceptance_length" not in plain["decode"][0]
    assert plain["decode"][1]["rows_per_step"] == 2


def test_a_step_takes_the_median_time_of_the_steps_of_its_size():
    decoding = object.__new__(Decoding)
    rows, spans, tokens = (4, 4, 2, 4, 2), (30, 10, 5, 10, 7), (3, 4, 1, 1, 2)
    steps = [{"num_tokens": size, "landed_ns": at} for at, size in enumerate(rows)]
    decoding.tokens = {at: Counter({7: count}) for at, count in enumerate(tokens)}
    assert decoding.token_rate(steps, spans) == pytest.approx(11 / (3 * 10 + 2 * 6) * 1e9)


def test_a_profile_with_drafts_is_that_of_the_rows_that_check_them():
    """`accept` runs only where draft tokens are checked."""
    drafts = ["--speculate", "lookup:3", "--acceptance-length", "2"]
    source = ["--synthetic", CAPITALS / "config.json", "--layers", "2", "--seed", "3"]
    asked = ["--batch", "1", "--context", "16", "--prefill", "24", "--steps", "30"]
    report = glm_json("bench", "--device", "cpu", *source, *asked, *drafts, "--profile")
    [row] = report["decode"]
    calls = {one["name"]: one["calls"] for one in row["operations"]}
    assert calls["attention"] == report["engine"]["num_layers"]
    assert calls["accept"] == pytest.approx(1, abs=0.2)


def test_the_prediction_layer_is_measured_where_it_drafts():
    source = ["--synthetic", CAPITALS / "config.json", "--layers", "2", "--seed", "3"]
    asked = ["--batch", "2", "--context", "16", "--prefill", "24", "--steps", "40"]
    rows = []
    for method in ("lookup:1", "mtp"):
        drafts = ["--speculate", method, "--acceptance-length", "1.8", "--profile"]
        report = glm_json("bench", "--device", "cpu", *source, *asked, *drafts)
        rows.append(report["decode"][0])
    lookup, layer = rows
    assert (report["engine"]["speculate"], report["engine"]["num_prediction_layers"]) == ("mtp", 1)
    assert layer["rows_per_step"] == lookup["rows_per_step"] == 4
    assert layer["mean_acceptance_length"] == pytest.approx(1.8, abs=0.2)
    assert layer["weight_bytes"] > lookup["weight_bytes"]
    assert any(one["name"].startswith("prediction: ") for one in layer["operations"])


def test_the_table_shows_tokens_of_a_pass_only_with_drafts():
    drafts = ["--speculate", "lookup:3"]
    made = [
        glm("bench", "--device", "cpu", "--model", CAPITALS, *SMALL, *options).stdout
        for options in ([], drafts)
    ]
    assert ["tokens/pass" in text for text in made] == [False, True]


def test_a_reader_that_comes_late_waits_for_no_ended_request(monkeypatch):
    wait = Engine.wait

    def wait_late(engine, seconds):
        steps = -1
        while steps != (steps := engine.info()["num_steps"]):
            time.sleep(LATE_SECONDS)
        assert wait(engine, 0) or engine.info()["live_requests"], "no event is to come"
        return wait(engine, seconds)

    monkeypatch.setattr(Engine, "wait", wait_late)
    arguments = ["--device", "cpu", "--model", str(CAPITALS), *SMALL, "--json"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    num_layers = json.loads(result.output)["engine"]["num_layers"]
    for row in json.loads(result.output)["decode"]:
        calls = {one["name"]: one["calls"] for one in row["operations"]}
        assert calls["attention"] == num_layers


@pytest.mark.parametrize("num_disturbed", [1, ATTEMPTS])
def test_requests_submitted_too_far_apart_are_measured_again(num_disturbed, monkeypatch):
    submit, disturbed = Engine.submit, []

    def submit_apart(engine, request):
        request_id = submit(engine, request)
        if request.max_tokens > 1 and len(disturbed) < 2 * num_disturbed:
            disturbed.append(request_id)
            while engine.info()["live_requests"]:
                time.sleep(LATE_SECONDS)
        return request_id

    monkeypatch.setattr(Engine, "submit", submit_apart)
    arguments = ["--device", "cpu", "--model", str(CAPITALS), *SMALL, "--batch", "2", "--json"]
    result = CliRunner().invoke(command, arguments)
    if num_disturbed < ATTEMPTS:
        assert json.loads(result.output)["decode"][0]["step_ms"] > 0
    else:
        assert "only 0 decode steps included all requests" in str(result.exception)


def test_tokens_are_drawn_as_asked(monkeypatch):
    submitted, submit = [], Engine.submit

    def record(engine, request):
        submitted.append(request)
        return submit(engine, request)

    monkeypatch.setattr(Engine, "submit", record)
    drawing = ["--temperature", "1", "--top-p", "0.9", "--repetition-penalty", "1.2"]
    asked = ["--device", "cpu", "--model", str(CAPITALS), *SMALL, "--no-profile", *drawing]
    result = CliRunner().invoke(command, asked)
    assert result.exit_code == 0, result.output
    drawn = Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.2)
    assert {request.sampling for request in submitted if request.max_tokens > 1} == {drawn}


def test_a_point_without_room_is_left_out_with_the_reason():
    options = ["--num-pages", "8", "--max-seq", "96", "--max-batch", "300", "--no-profile"]
    arguments = ["--batch", "4", "--context", "32", "--prefill", "200", "--steps", "4", *options]
    report = glm_json("bench", "--device", "cpu", "--model", CAPITALS, *arguments)
    assert "KV-cache pages, have 8" in report["decode"][0]["skipped"]
    assert report["engine"]["max_step_tokens"] == 2 * 300
    assert report["prefill"][0]["skipped"] == "longer than max_seq, 96"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--context", "8", "--max-seq", "20"], "needs max_seq 21, have 20"),
        (["--context", "99", "--max-seq", "20"], "needs max_seq 112, have 20"),
        (["--context", "8", "--max-batch", "1", "--batch", "2"], "needs max_batch 2, have 1"),
    ],
)
def test_a_point_beyond_the_sizes_is_left_out_with_the_reason(arguments, text):
    wanted = ["--batch", "1", "--prefill", "8", "--steps", "2", *arguments]
    report = glm_json("bench", "--device", "cpu", "--model", CAPITALS, *wanted)
    assert [row["skipped"] for row in report["decode"]] == [text]


def test_a_target_that_cannot_be_written_is_refused_before_measuring(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    measured = ["--device", "cpu", "--model", tmp_path / "no such model"]
    for option, target in (
        ("--output", tmp_path),
        ("--output", blocked / "report.json"),
        ("--plot", blocked / "plot"),
    ):
        assert "cannot be written: " in refused("bench", *measured, option, target)
    assert "no such model" in refused("bench", *measured, "--output", tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def test_a_plot_without_matplotlib_is_refused_before_measuring(tmp_path, monkeypatch):
    (tmp_path / "matplotlib.py").write_text("raise ImportError('blocked')\n")
    paths = os.pathsep.join([str(tmp_path), ENVIRONMENT["PYTHONPATH"]])
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", paths)
    wanted = ["bench", "--model", tmp_path / "none", "--plot"]
    line = refused(*wanted, tmp_path / "plot")
    assert line.startswith("glm: --plot needs matplotlib: run the command with `tools/develop")
    assert "expected a file name, e.g. reports/run, got '..'" in refused(*wanted, "..")
    assert "cannot be written: " in refused(*wanted, tmp_path / "matplotlib.py" / "plot")


def wait_until_it_has_opened(process, library):
    until = time.monotonic() + 60
    while library not in Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8"):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, f"{library} was not opened in a minute"
        time.sleep(0.05)


def test_interrupted_it_ends_with_130_and_no_traceback():
    arguments = ["bench", "--device", "cpu", "--model", CAPITALS, "--steps", "2000"]
    process = subprocess.Popen(
        [*GLM, *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until_it_has_opened(process, "libglm_cpu.so")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, (output, errors)
    assert errors.strip().endswith("glm: interrupted")
    assert "Traceback" not in errors


def test_an_installed_glm_names_the_extra_that_brings_matplotlib():
    code = (
        "from glm_engine.core import layout; layout.IS_WHEEL = True\n"
        "from glm_engine.bench.plots import WAY_TO_MATPLOTLIB; print(WAY_TO_MATPLOTLIB)"
    )
    run = [sys.executable, "-c", code]
    printed = subprocess.run(run, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert printed.stdout == 'install it with `pip install "glm-engine[plot]"`\n'


def titles_in(text):
    titles = re.compile(r"(Prefill|Decode|Operations .*?)(  .*)?")
    return [found[1] for found in map(titles.fullmatch, text.splitlines()) if found]


def test_the_two_tables_stand_below_one_line_about_the_machine():
    result = glm("bench", "--device", "cpu", "--model", CAPITALS, *SMALL)
    assert result.returncode == 0, result.stderr
    first, *lines = result.stdout.splitlines()
    assert re.match(
        r".*capitals, \d+ layers, on CPU.*: .* of weights loaded in .* s, memory", first
    )
    assert titles_in(result.stdout) == ["Prefill", "Decode"]
    assert "of roofline" in result.stdout
    assert lines[-1].split()[:2] == ["2", "16"]


def test_operations_are_shown_when_asked_for_above_the_two_tables(tmp_path):
    target = tmp_path / "bench.json"
    glm_json("bench", "--device", "cpu", "--model", CAPITALS, *SMALL, "--output", target)
    assert titles_in(glm("bench", "--show", target).stdout) == ["Prefill", "Decode"]
    assert titles_in(glm("bench", "--show", target, "--profile").stdout) == [
        "Operations of a prefill of 24 tokens",
        "Operations of a decode step, batch 1, context 16",
        "Operations of a decode step, batch 2, context 16",
        "Prefill",
        "Decode",
    ]


def test_a_long_benchmark_in_a_pipe_shows_lines_of_progress(monkeypatch, capsys):
    monkeypatch.setattr(console, "LINE_SECONDS", 0.02)
    assert main(["bench", "--device", "cpu", "--model", str(CAPITALS), *SMALL]) == 0
    lines = capsys.readouterr().err.splitlines()
    form = r"glm: measurements: \d of 3, \d+\.\d\d/s, time left (\d:\d\d:\d\d|unknown)"
    assert any(re.fullmatch(form, line) for line in lines), lines


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--model", CAPITALS, "--synthetic", "glm-4.7-fp8"], "cannot be used together"),
        (
            ["--synthetic", "nothing"],
            "expected the path to a config.json, or one of glm-4.5",
        ),
        (["--show", "nothing.json"], "nothing.json: cannot be read"),
        (["--model", CAPITALS, "--layers", "1", "--device", "cpu"], "only a synthetic model"),
    ],
)
def test_refusals(arguments, text):
    assert text in refused("bench", *arguments)


def test_a_list_that_holds_no_numbers_is_refused():
    assert "--batch" in refused("bench", "--batch", "1,x")

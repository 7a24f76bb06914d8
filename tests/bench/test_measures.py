"""The parts of the benchmark that reckon: prompts, steady rates, workers, memory, planning."""

import json
import os
from concurrent.futures import BrokenExecutor

import pytest
from click.testing import CliRunner

from tools.bench import __main__ as command
from tools.bench import decoding, index, memory, planning, report
from tools.bench.processes import Worker, WorkerError, ask_once
from tools.bench.report import Bound, Figure, Section


def test_prompts_are_all_different_and_of_one_length():
    rows = decoding.prompts(32, 64)
    assert [len(row) for row in rows] == [64] * 32
    assert len({tuple(row) for row in rows}) == 32


def test_prompts_longer_than_a_quiz_are_refused():
    with pytest.raises(ValueError, match="shorter than 1000000 tokens"):
        decoding.prompts(1, 1_000_000)


def test_a_steady_rate_counts_only_what_all_sequences_share():
    even = {0: [0.0, 1.0, 2.0, 3.0, 4.0], 1: [0.0, 1.0, 2.0, 3.0, 4.0]}
    assert decoding.steady_rate(even, warm_up=1) == 2.0
    late = {0: [0.0, 1.0, 2.0, 3.0, 4.0], 1: [2.0, 3.0, 4.0, 5.0, 6.0]}
    assert decoding.steady_rate(late, warm_up=1) == 2.0


def test_a_worker_that_ends_is_an_error():
    with Worker() as worker, pytest.raises(BrokenExecutor, match="terminated abruptly"):
        worker.ask(os._exit, 1)


def test_a_worker_has_the_variables_that_it_is_given():
    with Worker(OMP_NUM_THREADS="3") as worker:
        assert worker.ask(os.getenv, "OMP_NUM_THREADS") == "3"


def test_a_refused_question_is_an_error_that_says_why():
    with pytest.raises(WorkerError, match="no such folder"):
        ask_once(index.read, "no such folder")


def test_the_machine_is_described_by_plain_values():
    described = report.describe_machine()
    assert json.loads(json.dumps(described)) == described
    assert described["cores"] >= 1
    assert len(described["commit"].split()[0]) == 40
    with pytest.raises(ValueError, match="no field"):
        report.proc_field("/proc/meminfo", "Nothing")


def test_a_smoke_keeps_its_memory():
    (figure,) = memory.run().figures
    assert figure.value > 0
    assert figure.is_kept, figure


def test_planning_is_timed_on_every_shape():
    measured = planning.measure_all()
    assert set(measured) == set(planning.SHAPES)
    assert all(len(times) == planning.NUM_STEPS for times in measured.values())


@pytest.mark.parametrize(("value", "status"), [(1.0, 0), (3.0, 1)])
def test_a_missed_limit_is_said_and_fails(value, status, monkeypatch):
    figure = Figure("something", value, "s", Bound.AT_MOST, 2.0)
    section = Section("planning", "Planning", "Nothing is measured.", (figure,), {})
    monkeypatch.setitem(command.SECTIONS, "planning", lambda: section)
    monkeypatch.setattr(command, "require_packages", lambda _: None)
    result = CliRunner().invoke(command.main, ["--only", "planning"])
    assert result.exit_code == status
    assert ("missed: something: 3 s, limit ≤ 2 s" in result.stderr) == bool(status)


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setattr(command, "is_installed", lambda name: name == "torch")
    result = CliRunner().invoke(command.main, ["--only", "decoding"])
    assert result.exit_code == command.NO_MEASURE
    assert "not installed: transformers" in result.stderr
    assert "tools/develop --with oracle scons bench" in result.stderr

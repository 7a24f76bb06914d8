"""`glm verify`: its table, its JSON and its exit codes."""

import json
import re
from functools import partial

import pytest

from glm_engine.cli import command_line
from glm_engine.core.errors import EngineLibraryError
from glm_engine.verify import verification
from glm_engine.verify.device import Backend
from tests.nvidia_driver import skip_where_a_gpu_is
from tests.python.commands.running import CPU, glm, glm_json, refused
from tests.python.verify.altered import (
    AlteredBackend,
    AlteredDevice,
    CpuDevice,
    RefusingDevice,
    scaled,
)

COLUMNS = ["operation", "shape", "rows", "greatest error", "limit", "result"]
FIELDS = {"operation", "shape", "rows", "error", "limit", "passed", "message"}
SCATTERED = "reduce_add_norm_quantise, scattered"
RANKS = {
    "linear, summed and normed",
    "experts, summed and normed",
    SCATTERED,
    *(f"{SCATTERED}: {part}" for part in ("residual", "codes", "scales")),
    "logits, gathered",
    "logits, dealt",
}


def parts(line):
    return re.split(r" {2,}", line.strip())


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs `glm verify --device cuda`, where CUDA is what `make` opens and the oracle the CPU."""

    def verify(make, *arguments):
        def opened(kind):
            if kind == "futhark":
                raise EngineLibraryError("libglm_futhark.so not found")
            return AlteredBackend(make) if kind == "cuda" else Backend(kind)

        monkeypatch.setattr(verification, "open_backend", opened)
        code = command_line.main(["verify", "--device", "cuda", *arguments])
        return code, capsys.readouterr().out

    return verify


def test_the_cpu_is_the_oracle_and_compares_its_ranks():
    result = glm("verify", *CPU)
    assert result.returncode == 0, result.stderr
    fields, rows, last = result.stdout.split("\n\n")
    names = dict(parts(line) for line in fields.splitlines() if not line.startswith("note"))
    assert names["device"].startswith("cpu: ")
    assert names["oracle"] == verification.TWO_RANKS
    assert names["model"].endswith("capitals")
    head, *found = [parts(line) for line in rows.splitlines()]
    assert head == COLUMNS
    assert {row[0] for row in found} == RANKS
    assert {row[-1] for row in found} == {"ok"}
    assert last == f"All {len(RANKS)} comparisons are within their limits.\n"


def test_auto_is_the_cpu_without_a_gpu():
    skip_where_a_gpu_is()
    assert glm_json("verify")["device"] == "cpu"


def test_json_has_the_same_rows():
    made = glm_json("verify", *CPU, "--synthetic", "glm-4.5-air-fp8")
    assert made["passed"]
    assert made["failed"] == []
    assert made["model"] == "glm-4.5-air-fp8"
    assert {row["operation"] for row in made["operations"]} == RANKS
    for row in made["operations"]:
        assert row.keys() == FIELDS
        assert row["passed"]
        assert 0 <= row["error"] <= row["limit"]


@pytest.mark.parametrize(
    ("num_gpus", "note"), [(1, verification.ONE_GPU), (2, verification.OWN_GPUS)]
)
def test_a_sound_device_passes_and_the_reduced_oracle_is_named(run, monkeypatch, num_gpus, note):
    monkeypatch.setattr(AlteredBackend, "device_count", lambda _: num_gpus)
    code, printed = run(CpuDevice)
    assert code == 0
    operations = {parts(line)[0] for line in printed.splitlines() if line}
    assert operations >= RANKS | {"place_vector", "begin_drafts", "keep_drafts"}
    assert f"note    {note}\n" in printed
    assert verification.ON_CPU in printed
    assert "note    no oracle on the GPU: libglm_futhark.so not found" in printed
    assert "FAILED" not in printed
    assert "--device futhark" not in printed


def test_a_wrong_operation_is_named_with_the_way_meanwhile(run):
    code, printed = run(partial(AlteredDevice, "logits", scaled))
    assert code == 1
    *_, last = printed.splitlines()
    assert last == "Failed: logits. Until that is fixed, use --device futhark."
    (line,) = [line for line in printed.splitlines() if "FAILED" in line]
    operation, _, _, error, limit, result = parts(line)
    assert (operation, result) == ("logits", "FAILED")
    assert float(error) > float(limit)


def test_a_refusal_has_no_error_in_json(run):
    code, printed = run(partial(RefusingDevice, "route"), "--json")
    assert code == 1
    made = json.loads(printed)
    assert made["failed"] == ["route"]
    (row,) = [row for row in made["operations"] if not row["passed"]]
    assert (row["error"], row["message"]) == (None, "route: not for this device")


def test_a_lost_device_ends_the_comparison(run, monkeypatch):
    monkeypatch.setattr(verification, "is_lost", lambda _: True)
    _, printed = run(CpuDevice)
    assert "the device was lost at place_vector; not compared: embed, quantise" in printed
    assert "begin_drafts, copy_pages, two ranks" in printed


def test_an_unknown_model_is_one_line():
    assert "no-such-model: not a folder or a known name" in refused("verify", "no-such-model")
    both = refused("verify", "capitals", "--synthetic", "glm-4.7-fp8")
    assert both == "glm: --model and --synthetic cannot be used together\n"
    known = refused("verify", "--synthetic", "glm-9")
    assert "expected the path to a config.json, or one of glm-4.5-air-fp8, glm-4.7-fp8" in known


def test_a_config_without_widths_is_one_line(tmp_path):
    (tmp_path / "config.json").write_text('{"hidden_size": 8, "vocab_size": "many"}')
    message = refused("verify", *CPU, "--synthetic", tmp_path)
    assert "config.json: expected whole numbers in num_attention_heads" in message
    assert "vocab_size" in message


def test_a_missing_library_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(verification, "find_backend_library", lambda _: None)
    assert command_line.main(["verify", "--device", "futhark"]) == 3
    assert capsys.readouterr().err == "glm: libglm_futhark.so not found beside engine.so\n"

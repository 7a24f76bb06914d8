"""The judge of memory after loading: equal for one build, and each rank's own for one bit."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glm_engine.core import abi
from glm_engine.core.engine import Engine, EngineOptions, plan
from glm_engine.core.errors import Status
from glm_engine.core.libraries import VARIABLE
from tests.bench.refusals import expect_refused
from tests.bench.test_bits import recorded, run, use_models, written
from tests.engine.test_loading import read_tensors, write_tensors
from tools.bench import bits_memory, bits_models
from tools.bench.bits import main
from tools.bench.processes import ROOT, child_environment
from tools.checkpoint.random_model import small_config, write_random_model

BITS = ROOT / "tests" / "data" / "bits"
KEPT, KEPT_AT_FULL_WIDTH = BITS / "memory-cpu.json", BITS / "memory-cpu-full-width.json"
CAPITALS = ROOT / "checkpoints" / "capitals"
FEW = ("fp8_capitals", "tied", "fp8_mixed_two_shared", "bf16_glm_4_7_sixteenth")
LAYER = "model.layers.2"
EXPERTS, TENSORS = bits_models.LAYOUTS


def of_few(command: str, *arguments: object) -> list[str]:
    chosen = [part for name in FEW for part in ("--only", name)]
    return [command, *(str(one) for one in arguments), *chosen]


def weights(folder: Path, name: str, only: str) -> dict[str, dict[str, str]]:
    """The rows of engines that a recording of memory has, by what follows the device."""
    rows = recorded(folder / name, only, "memory")
    return {label.partition(" cpu ")[2]: row for label, row in rows.items() if " cpu " in label}


def flip(model: Path, name: str, at: int) -> None:
    """Change one bit of the byte at `at` of a tensor."""
    tensors = read_tensors(model)
    dtype, shape, content = tensors[name]
    changed = bytearray(content)
    changed[at] ^= 1
    write_tensors(model, {**tensors, name: (dtype, shape, bytes(changed))})


def test_this_build_loads_what_the_kept_record_has(tmp_path):
    found = tmp_path / "found.json"
    assert run(*of_few("memory", found))[0] == 0
    status, said = run(*of_few("compare", KEPT, found))
    assert (status, said) == (0, "64 rows are equal, 0 differ or are missing\n")


def test_the_kept_record_has_a_row_of_every_engine():
    chosen = [model for model in bits_memory.memory_models(False) if model.runs_on("cpu")]
    runs = {run.label for model in chosen for run in bits_memory.memory_runs(model, "cpu", 1)}
    assert set(json.loads(KEPT.read_text())) == runs | {f"{model.name} files" for model in chosen}


def test_the_kept_bytes_at_full_width_are_those_of_the_plan():
    cut = bits_memory.FULL_WIDTH
    kept = json.loads(KEPT_AT_FULL_WIDTH.read_text())
    labels = {f"{cut.name} files"}
    for chosen in bits_memory.memory_runs(cut, "cpu", 1):
        labels.add(chosen.label)
        wanted = {"device": "cpu", "num_layers": cut.num_layers} | chosen.options
        ranks = plan(EngineOptions(ROOT / cut.synthetic, **wanted))["ranks"]
        assert {str(rank["weight_bytes"]) for rank in ranks} == {kept[chosen.label]["bytes"]}
        assert len(kept[chosen.label]) == 1 + len(ranks)
    assert set(kept) == labels


def test_bytes_that_are_never_written_are_zero(tmp_path):
    found = tmp_path / "found.json"
    command = [sys.executable, "-m", "tools.bench.bits", *of_few("memory", found)]
    filled = child_environment(MALLOC_PERTURB_="165")
    subprocess.run(command, cwd=ROOT, env=filled, check=True, capture_output=True)
    assert run(*of_few("compare", KEPT, found))[0] == 0


@pytest.mark.parametrize(
    ("tensor", "at", "split", "whole"),
    [
        ("model.embed_tokens.weight", 0, {0, 1}, {0, 1}),
        ("model.norm.weight", -1, {0, 1}, {0, 1}),
        ("lm_head.weight", 0, {0}, {0}),
        ("lm_head.weight", -1, {1}, {1}),
        (f"{LAYER}.self_attn.q_proj.bias", 0, {0}, {0}),
        (f"{LAYER}.self_attn.o_proj.weight", -1, {1}, {1}),
        (f"{LAYER}.mlp.experts.0.down_proj.weight", -1, {1}, {0}),
        (f"{LAYER}.mlp.experts.7.gate_proj.weight", 0, {0}, {1}),
        (f"{LAYER}.mlp.shared_experts.down_proj.weight", -1, {1}, {1}),
    ],
)
def test_one_bit_changes_the_ranks_that_hold_it(tensor, at, split, whole, tmp_path, monkeypatch):
    model = tmp_path / "model"
    write_random_model(model, small_config(False), seed=1)
    own = {"path": str(model), "courses": "small", "most_ranks": 2}
    use_models(monkeypatch, tmp_path / "models.json", own=own)
    before = weights(tmp_path, "before.json", "own")
    flip(model, tensor, at)
    after = weights(tmp_path, "after.json", "own")
    for layout, ranks in {TENSORS: split, EXPERTS: whole}.items():
        kept, found = before[f"W=2 {layout} loaded"], after[f"W=2 {layout} loaded"]
        assert {part for part in kept if kept[part] != found[part]} == {f"rank {r}" for r in ranks}
        assert before[f"W=2 {layout} random"] == after[f"W=2 {layout} random"]


@pytest.mark.parametrize(
    ("tensor", "at"),
    [
        ("model.embed_tokens.weight", 0),
        ("model.layers.1.mlp.experts.3.up_proj.weight", 0),
        ("model.layers.3.mlp.shared_experts.down_proj.weight", -1),
    ],
)
def test_all_pieces_of_the_memory_count(tensor, at, tmp_path, monkeypatch):
    model = tmp_path / "model"
    shutil.copytree(CAPITALS, model)
    use_models(monkeypatch, tmp_path / "models.json", own={"path": str(model)})
    before = weights(tmp_path, "before.json", "own")["W=1 loaded"]
    assert int(before["bytes"]) > 3 * 2**20
    flip(model, tensor, at)
    after = weights(tmp_path, "after.json", "own")["W=1 loaded"]
    assert after["bytes"] == before["bytes"]
    assert after["rank 0"] != before["rank 0"]


def test_the_bytes_are_those_that_the_engine_tells():
    with bits_memory.debug_library(), Engine(options(world_size=2)) as engine:
        row = bits_memory.weights_of(engine)
        assert int(row["bytes"]) * 2 == engine.info()["weight_bytes"]
        assert set(row) == {"bytes", "rank 0", "rank 1"}


def test_a_freed_engine_is_refused():
    with bits_memory.debug_library():
        engine = Engine(options(world_size=1))
        handle = engine.handle
        bits_memory.weights_of(engine)
        engine.close()
        message, word = abi.Message(), ctypes.c_uint64()
        probe = getattr(engine.library, bits_memory.PROBE)
        status = probe(handle, ctypes.byref(word), ctypes.byref(ctypes.c_int64()), message)
    assert status == Status.GLM_INVALID_ARGUMENT
    assert b"already freed" in message.text


def options(**changes) -> EngineOptions:
    chosen = bits_memory.SMALLEST_ENGINE | changes
    return EngineOptions(CAPITALS, device="cpu", **chosen)


def test_a_library_without_the_probe_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(ROOT / "build" / "engine.so"))
    asked = ["memory", str(tmp_path / "x"), "--only", "bf16_small"]
    expect_refused(main, asked, "is not the debug build")


def test_the_debug_build_is_chosen_for_the_recording_alone(tmp_path, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with bits_memory.debug_library() as path:
        assert path == bits_memory.DEBUG_LIBRARY
    assert VARIABLE not in os.environ
    monkeypatch.setenv(VARIABLE, str(written(tmp_path / "own.so", {})))
    with bits_memory.debug_library() as path:
        assert path == tmp_path / "own.so"
    assert os.environ[VARIABLE] == str(tmp_path / "own.so")


def test_the_large_cut_is_recorded_only_if_asked():
    few, all_of_them = bits_memory.memory_models(False), bits_memory.memory_models(True)
    assert [model for model in all_of_them if model not in few] == [bits_memory.FULL_WIDTH]
    labels = [run.label for run in bits_memory.memory_runs(bits_memory.FULL_WIDTH, "cuda", 8)]
    assert labels == [
        f"fp8_air_full_width cuda W=8 {layout} random" for layout in bits_models.LAYOUTS
    ]


def test_an_engine_that_does_not_open_ends_with_1(tmp_path, monkeypatch):
    good = {"config": small_config(False), "seed": 1}
    halved = {"config": small_config(False, num_key_value_heads=1), "seed": 1, "most_ranks": 2}
    use_models(monkeypatch, tmp_path / "models.json", good=good, halved=halved)
    status, said = run("memory", tmp_path / "rows.json", "--only", "good", "--only", "halved")
    assert (status, said.split(", ")[1]) == (1, "4 engines failed\n")

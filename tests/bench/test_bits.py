"""The ledger of bits: equal for one build, different for one bit, and complete."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from glm_engine.core import abi
from glm_engine.core.abi import event_records
from glm_engine.core.errors import EngineError, Status
from tests.bench.refusals import expect_one_line, expect_refused
from tests.engine import test_mixed_types, test_world_sizes
from tests.reference.configs import CONFIGS, FORMATS, SEEDS, WORLD_SIZES
from tools.bench import bits, bits_courses, bits_models
from tools.bench.bits import main
from tools.checkpoint.random_model import small_config, write_random_model

RUN = "bf16_small cpu W=1"
COURSES = {
    "prefill 1",
    "prefill 13",
    "prefill 65",
    "prefill 65 last",
    "batch 1",
    "batch 6",
    "preempted",
    "cached prefix",
}
BY_NAME = {model.name: model for model in bits_models.models()}


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result.exit_code, result.stdout


def recorded(path: Path, only: str = RUN, command: str = "record") -> dict:
    status, said = run(command, path, "--only", only)
    assert status == 0, said
    return json.loads(path.read_text())


def written(path: Path, rows: dict) -> Path:
    path.write_text(json.dumps(rows))
    return path


def use_models(monkeypatch, path: Path, **models: dict) -> None:
    monkeypatch.setattr(bits_models, "MODELS", written(path, models))


def test_a_build_records_the_same_bits_again(tmp_path):
    first = recorded(tmp_path / "first.json")
    assert set(first) == {"bf16_small files", *(f"{RUN} {course}" for course in COURSES)}
    assert recorded(tmp_path / "second.json") == first
    status, said = run("compare", tmp_path / "first.json", tmp_path / "second.json")
    assert (status, said) == (0, "8 rows are equal, 0 differ or are missing\n")


def test_threads_do_not_change_the_bits(tmp_path):
    recorded(tmp_path / "first.json")
    status, _ = run("record", tmp_path / "second.json", "--only", RUN, "--num-threads", 3)
    assert status == 0
    assert run("compare", tmp_path / "first.json", tmp_path / "second.json")[0] == 0


def test_one_bit_of_one_weight_is_seen(tmp_path, monkeypatch):
    model = tmp_path / "model"
    specs = write_random_model(model, small_config(False), seed=1)
    use_models(monkeypatch, tmp_path / "models.json", own={"path": str(model), "courses": "small"})
    before = recorded(tmp_path / "before.json", "own")
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-sum(spec.num_bytes for spec in specs if spec.name == "model.norm.weight")] ^= 1
    weights.write_bytes(content)
    after = recorded(tmp_path / "after.json", "own")
    assert before["own files"] != after["own files"]
    changed = {name for name, row in before.items() if after[name] != row}
    assert changed >= {f"own cpu W=1 {course}" for course in COURSES}
    assert run("compare", tmp_path / "before.json", tmp_path / "after.json")[0] == 1


ROWS = {"a cpu": {"logits": "00", "tokens": "11"}, "b cpu": {"logits": "22", "tokens": "33"}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"b cpu": {"logits": "22", "tokens": "34"}}, "b cpu: tokens differ"),
        ({"a cpu": {"logits": "00"}}, "a cpu: tokens differ"),
        ({"a cpu": {"logits": "00", "tokens": "11", "alone": "5"}}, "a cpu: alone differ"),
        ({"c cpu": {"logits": "44"}}, "c cpu: only in the second"),
    ],
)
def test_each_row_that_differs_is_named(changed, said, tmp_path):
    kept, found = written(tmp_path / "1", ROWS), written(tmp_path / "2", ROWS | changed)
    status, output = run("compare", kept, found)
    assert (status, output.splitlines()[:-1]) == (1, [said])
    assert run("compare", found, kept)[0] == 1


def test_rows_that_are_missing_are_named_unless_left_out(tmp_path):
    kept = written(tmp_path / "1", ROWS)
    found = written(tmp_path / "2", {"a cpu": ROWS["a cpu"]})
    assert run("compare", kept, found) == (
        1,
        "b cpu: only in the first\n1 rows are equal, 1 differ or are missing\n",
    )
    assert run("compare", kept, found, "--only", "a ")[0] == 0


def test_no_rows_are_no_agreement(tmp_path):
    empty = written(tmp_path / "1", {})
    files = written(tmp_path / "3", {"a files": {"files": "00"}})
    assert run("compare", empty, empty)[0] == 1
    assert run("compare", files, files)[0] == 1
    assert run("compare", written(tmp_path / "2", ROWS), empty, "--only", "z")[0] == 1


def test_an_engine_that_fails_is_no_row_and_ends_with_1(tmp_path, monkeypatch):
    good = {"config": small_config(False), "seed": 1, "courses": "small"}
    loud = good | {"config": small_config(False) | {"initializer_range": 1e30}}
    halved = good | {"config": small_config(False, num_key_value_heads=1), "most_ranks": 2}
    use_models(monkeypatch, tmp_path / "models.json", good=good, loud=loud, halved=halved)
    status, said = run("record", tmp_path / "rows.json")
    assert (status, said.split(", ")[1]) == (1, "3 engines failed\n")
    rows = json.loads((tmp_path / "rows.json").read_text())
    computed = {name for name in rows if not name.endswith(" files")}
    assert {name.split(" cpu W=1 ")[0] for name in computed} == {"good", "halved"}
    use_models(monkeypatch, tmp_path / "models.json", loud=loud, good=good)
    assert run("record", tmp_path / "rows.json")[0] == 3


def test_a_device_that_is_not_here_ends_the_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(bits, "Engine", refuse_to_open)
    assert run("record", tmp_path / "rows.json", "--device", "cuda")[0] == 3
    assert not (tmp_path / "rows.json").exists()


def refuse_to_open(_options):
    raise EngineError("init_engine_with", Status.GLM_NOT_SUPPORTED, "no GPU")


def test_a_request_that_fails_is_no_row():
    records, _ = event_records(1)
    records["kind"], records["status"], records["message"] = abi.EVENT_FAILED, 8, b"not finite"
    with pytest.raises(EngineError, match="not finite"):
        bits_courses.take(records, {0: []})


def test_the_hash_is_of_bits():
    zero, negative = np.zeros(2, np.float32), -np.zeros(2, np.float32)
    assert np.array_equal(zero, negative)
    assert bits_courses.hash_of(zero) != bits_courses.hash_of(negative)
    assert bits_courses.hash_of(zero, zero) == bits_courses.hash_of(np.zeros(4, np.float32))


def same_model(name: str, config: dict, seed: int) -> bool:
    """Whether the ledger's model has a config's sizes, seed and quantised linears."""
    kept = BY_NAME[name]
    sizes = {key: value for key, value in config.items() if key != "quantization_config"}
    quantised_but = config.get("quantization_config", {}).get("ignore")
    return (kept.config, kept.seed, kept.quantised_but) == (sizes, seed, quantised_but)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_golden_models_are_in_the_ledger(name):
    kept = BY_NAME[name]
    assert same_model(name, CONFIGS[name], SEEDS[name])
    assert (kept.scale_dtype, kept.num_shards) == FORMATS[name]
    assert kept.most_ranks == max(WORLD_SIZES.get(name, (1,)))


@pytest.mark.parametrize("name", test_world_sizes.MODELS)
@pytest.mark.parametrize("is_fp8", [False, True])
def test_the_models_of_world_sizes_are_in_the_ledger(name, is_fp8):
    widths = {**test_world_sizes.BASE, **test_world_sizes.MODELS[name]}
    config = {**small_config(is_fp8, **widths), "initializer_range": 0.08}
    kept = f"{'fp8' if is_fp8 else 'bf16'}_{name}"
    assert same_model(kept, config, test_world_sizes.SEED)
    assert BY_NAME[kept].most_ranks == 8


@pytest.mark.parametrize("name", test_mixed_types.RUNS)
def test_the_models_of_mixed_types_are_in_the_ledger(name):
    kept = BY_NAME[f"fp8_but_{name.replace(' ', '_')}"]
    assert kept.quantised_but == ["lm_head", test_mixed_types.RUNS[name]]


def labels(name: str, device: str, num_gpus: int = 1) -> list[str]:
    runs = bits_models.runs_of(BY_NAME[name], device, num_gpus)
    return [run.label.removeprefix(f"{name} {device} ") for run in runs]


def test_the_runs_of_a_model():
    split = [f"W={size} {one}" for size in (2, 4, 8) for one in bits_models.LAYOUTS]
    assert labels("fp8_capitals", "cpu") == ["W=1", *split]
    assert labels("fp8_odd_sizes", "cpu") == ["W=1"]
    assert labels("fp8_odd_sizes", "cuda", 2) == []
    assert labels("fp8_small", "cuda") == ["W=1 bfloat16 graphs", "W=1 fp8_e4m3 eager"]
    pairs = {"bfloat16 graphs", "fp8_e4m3 eager", "bfloat16 eager", "fp8_e4m3 graphs"}
    halves = {f"W=2 {layout} {pair}" for layout in bits_models.LAYOUTS for pair in pairs}
    assert set(labels("fp8_glm_4_7_quarter", "cuda", 2)) == halves


def test_every_model_has_courses_where_it_runs():
    left_out = {"cpu": set(), "cuda": set()}
    for name, model in BY_NAME.items():
        for device, names in left_out.items():
            if model.runs_on(device):
                assert (device, model.courses) in bits_courses.COURSES
            else:
                names.add(name)
    assert left_out["cuda"] == {"f32_small"}
    assert all(BY_NAME[name].courses in ("wide", "full") for name in left_out["cpu"])


def test_arguments_that_are_none_are_refused(tmp_path):
    expect_refused(main, ["record"], "OUTPUT")
    expect_refused(main, ["record", str(tmp_path / "x"), "--gpus", "3"], "--gpus")
    expect_refused(main, ["record", str(tmp_path / "x"), "--only", "no such"], "no run has a name")
    expect_one_line(main, ["compare", str(tmp_path / "x"), str(tmp_path / "x")], "x")


def test_a_disk_that_takes_no_checkpoint_is_trouble_and_no_difference(tmp_path, monkeypatch):
    def refuse(*_):
        raise bits_models.CheckpointWriteError("no room")

    monkeypatch.setattr(bits_models, "write_model", refuse)
    expect_refused(main, ["record", str(tmp_path / "x"), "--only", RUN], "no room")


def test_an_interrupt_has_a_status_of_its_own(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bits.Ledger, "add_model", interrupt)
    assert CliRunner().invoke(main, ["record", str(tmp_path / "x")]).exit_code == 130

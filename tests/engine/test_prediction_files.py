"""Where a checkpoint keeps its prediction layer, and what is said where its files lack it."""

import json
from pathlib import Path

import pytest

from glm_engine.core.engine import inspect_checkpoint
from glm_engine.core.errors import EngineError
from tests.engine import tamper
from tests.engine.test_loading import (
    ignoring,
    logits,
    read_tensors,
    same_bits,
    write,
    write_tensors,
)
from tests.engine.test_plan import plan_of
from tests.engine.test_prediction_layer import (
    AUTO,
    FIRST_TENSOR,
    HIDDEN_SIZE,
    LAYER,
    LOOKUP,
    MTP,
    OFF,
    num_loaded,
    refusal,
    weights,
)


@pytest.fixture
def model(tmp_path) -> Path:
    return tamper.small_checkpoint(tmp_path / "model", num_nextn_predict_layers=1)


def layer_of(directory: Path) -> dict:
    return {k: v for k, v in read_tensors(directory).items() if k.startswith(LAYER)}


def without_layer(directory: Path) -> Path:
    kept = {k: v for k, v in read_tensors(directory).items() if not k.startswith(LAYER)}
    write_tensors(directory, kept)
    return directory


def with_layer_beside(directory: Path, file: str, more: dict) -> Path:
    """Moves the layer's tensors, and `more`, from model.safetensors into a file of their own."""
    layer = layer_of(directory)
    without_layer(directory)
    single = (directory / "model.safetensors").read_bytes()
    write_tensors(directory, {**layer, **more})
    (directory / "model.safetensors").rename(directory / file)
    (directory / "model.safetensors").write_bytes(single)
    return directory


def reports(directory: Path, **options) -> list[tuple[str, str]]:
    """What `inspect` and `plan` say of the layer."""
    documents = inspect_checkpoint(directory), plan_of(directory, **options)
    return [(one["prediction_layer"], one["prediction_layer_note"]) for one in documents]


def test_reports_of_a_layer_in_the_files(model):
    assert reports(model, **OFF) == [("available", "")] * 2
    assert reports(model, **MTP) == [("available", ""), ("loaded", "")]


def test_files_without_the_promised_layer_are_refused(model):
    message = refusal(without_layer(model), **MTP)
    assert message.startswith(f"{model}: ")
    lack = (
        "config.json promises a prediction layer (num_nextn_predict_layers is 1), but"
        f" model.safetensors lacks {FIRST_TENSOR}"
    )
    assert f"speculate is mtp: {lack}; use speculate lookup:N" in message
    assert num_loaded(model, **AUTO) == 0
    assert reports(model, **AUTO) == [("missing", lack)] * 2
    assert inspect_checkpoint(model)["problems"] == []


def test_shards_without_the_promised_layer_name_the_index(model):
    for name in layer_of(model):
        tamper.drop_tensor(model, name)
    assert f"but {tamper.INDEX_NAME} lacks {FIRST_TENSOR}" in refusal(model, **MTP)


def test_a_layer_without_one_tensor_is_refused_by_name(model):
    tamper.drop_tensor(model, f"{LAYER}hnorm.weight")
    assert num_loaded(model, **OFF) == 0
    with pytest.raises(EngineError, match=r"layers\.3\.hnorm\.weight: the tensor is missing"):
        num_loaded(model, **MTP)


def test_a_broken_shard_is_the_reason_before_the_layer(model):
    path = tamper.shard_of(model, FIRST_TENSOR)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(EngineError, match=path.name) as caught:
        plan_of(model, **MTP)
    assert "speculate" not in str(caught.value)


def test_a_shard_of_its_own_in_the_index(model):
    expected, placed = plan_of(model, **MTP), weights(model, **MTP)
    whole = read_tensors(model)
    with_layer_beside(model, "mtp.safetensors", {})
    files = dict.fromkeys(whole, "model.safetensors") | dict.fromkeys(
        layer_of(model), "mtp.safetensors"
    )
    (model / tamper.INDEX_NAME).write_text(json.dumps({"weight_map": files}), encoding="utf-8")
    assert plan_of(model, **MTP)["ranks"] == expected["ranks"]
    assert weights(model, **MTP) == placed


def test_a_file_that_no_index_lists(model):
    expected, trunk = plan_of(model, **MTP), plan_of(model, **OFF)
    placed = weights(model, **MTP)
    copy = {"model.norm.weight": read_tensors(model)["model.norm.weight"]}
    with_layer_beside(model, "mtp.safetensors", copy)
    (model / "a.safetensors").write_bytes(b"no header")
    note = "in mtp.safetensors, which model.safetensors does not list"
    assert reports(model, **OFF) == [("available", note)] * 2
    assert reports(model, **MTP)[1] == ("loaded", note)
    assert plan_of(model, **MTP)["ranks"] == expected["ranks"]
    assert plan_of(model, **OFF)["ranks"] == trunk["ranks"]
    assert weights(model, **MTP) == placed
    assert same_bits(logits(model), logits(model, **MTP))


def test_a_damaged_file_that_no_index_lists(model):
    layer = f"{LAYER}hnorm.weight"
    with_layer_beside(model, "mtp.safetensors", {})
    tamper.change_header(
        model / "mtp.safetensors", lambda header: header[layer].update(shape=[2, HIDDEN_SIZE // 2])
    )
    assert num_loaded(model, **OFF) == 0
    with pytest.raises(EngineError, match=rf"mtp\.safetensors: {layer}: expected shape"):
        num_loaded(model, **MTP)


def test_a_config_without_the_layer_is_refused(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    assert reports(directory, **AUTO) == [("none", "")] * 2
    message = refusal(directory, **MTP)
    assert f"{directory / 'config.json'} has no prediction layer" in message
    assert num_loaded(directory, **AUTO) == 0


def test_auto_goes_on_without_a_layer_that_it_cannot_use(tmp_path):
    config = ignoring(rf"re:{LAYER}") | {"num_nextn_predict_layers": 1}
    directory = write(tmp_path / "model", config)
    assert num_loaded(directory, **AUTO) == 1
    trunk = logits(directory)
    tamper.change_quantisation(directory, lambda rules: rules["ignore"].pop())
    name = f"{LAYER}self_attn.q_proj"
    problem = f"{name}.weight: the weight is BF16, but quantization_config in config.json says"
    with pytest.raises(EngineError, match=problem):
        num_loaded(directory, **MTP)
    assert num_loaded(directory, **AUTO) == 0
    assert same_bits(trunk, logits(directory, **AUTO))
    state, note = reports(directory, **AUTO)[1]
    assert state == "unusable"
    assert problem in note
    assert plan_of(directory, **AUTO)["ranks"] == plan_of(directory, **LOOKUP)["ranks"]


def test_auto_names_a_problem_of_the_model_itself(model):
    tamper.drop_tensor(model, "model.layers.0.input_layernorm.weight")
    with pytest.raises(
        EngineError, match=r"layers\.0\.input_layernorm\.weight: the tensor is miss"
    ):
        num_loaded(model, **AUTO)

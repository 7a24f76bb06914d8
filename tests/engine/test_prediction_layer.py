"""The layer that predicts the next token but one: when it is loaded, refused or left out."""

from pathlib import Path

import pytest

from glm_engine.core.engine import Engine, EngineOptions, plan
from glm_engine.core.errors import EngineError, Status
from tests.engine import tamper
from tests.engine.test_device_limits import TERABYTE
from tests.engine.test_loading import (
    ignoring,
    logits,
    read_tensors,
    same_bits,
    widened,
    write,
    write_tensors,
)
from tests.engine.test_plan import CAPITALS, plan_of
from tests.engine.test_synthetic import LARGE, synthetic_options
from tools.bench import bits_memory
from tools.checkpoint.random_model import small_config

OFF = {"speculate": "off"}
MTP = {"speculate": "mtp"}
AUTO = {"speculate": "auto", "max_draft_tokens": 3}
LOOKUP = {"speculate": "lookup", "max_draft_tokens": 3}
LAYER = "model.layers.3."
FIRST_TENSOR = f"{LAYER}eh_proj.weight"
HEAD, EMBEDDING = f"{LAYER}shared_head.head.weight", f"{LAYER}embed_tokens.weight"
VOCABULARY_SIZE, HIDDEN_SIZE = 128, 64


@pytest.fixture
def model(tmp_path) -> Path:
    return tamper.small_checkpoint(tmp_path / "model", num_nextn_predict_layers=1)


def num_loaded(model_dir: Path, **options) -> int:
    chosen = {"max_seq": 64, "max_batch": 2, "num_threads": 1, **options}
    with Engine(EngineOptions(model_dir, device="cpu", **chosen)) as engine:
        return engine.info()["num_prediction_layers"]


def refusal(model_dir: Path, **options) -> str:
    with pytest.raises(EngineError) as caught:
        plan_of(model_dir, **options)
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT
    with pytest.raises(EngineError) as opened:
        num_loaded(model_dir, **options)
    assert str(opened.value) == str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("options", "count"), [(OFF, 0), (LOOKUP, 0), (MTP, 1), (AUTO, 1)], ids=str
)
def test_options_that_load_it(model, options, count):
    assert num_loaded(model, **options) == count
    assert num_loaded(CAPITALS, **options) == count


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_plans_count_its_weights_and_cache(world_size):
    plain = plan_of(CAPITALS, world_size=world_size, **LOOKUP)
    loaded = plan_of(CAPITALS, world_size=world_size, **AUTO)
    layer_bytes = plain["checkpoint_bytes_with_nextn"] - plain["checkpoint_bytes"]
    assert loaded["checkpoint_bytes"] == plain["checkpoint_bytes_with_nextn"]
    assert loaded["num_parameters"] == plain["num_parameters_with_nextn"]
    assert 4 * loaded["kv_bytes_per_token"] == 5 * plain["kv_bytes_per_token"]
    assert 4 * loaded["page_bytes"] == 5 * plain["page_bytes"]
    for with_layer, without in zip(loaded["ranks"], plain["ranks"], strict=True):
        more = with_layer["weight_bytes"] - without["weight_bytes"]
        assert layer_bytes / world_size < more < 1.05 * layer_bytes / world_size + 300_000


@pytest.mark.parametrize("options", [OFF, LOOKUP], ids=str)
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_plans_without_it_count_the_trunk_alone(world_size, options, tmp_path):
    chosen = {"world_size": world_size, "num_pages": 64, "max_seq": 256, **options}
    config = small_config(num_nextn_predict_layers=1, num_key_value_heads=8)
    with_layer = plan_of(write(tmp_path / "with", config), **chosen)
    config = small_config(num_nextn_predict_layers=0, num_key_value_heads=8)
    without = plan_of(write(tmp_path / "without", config), **chosen)
    assert with_layer["ranks"] == without["ranks"]
    assert with_layer["needed_bytes"] == without["needed_bytes"]
    assert with_layer["num_parameters"] == without["num_parameters"]


@pytest.mark.parametrize("world_size", [1, 2])
def test_the_trunk_keeps_its_bits(model, world_size):
    assert same_bits(
        logits(model, world_size=world_size), logits(model, world_size=world_size, **MTP)
    )


def weights(model_dir: Path, num_bytes: int = 0, **options) -> dict[str, str]:
    """Size and hashes of the ranks' weights, or of their first bytes."""
    chosen = {"max_seq": 64, "max_batch": 2, **options}
    with (
        bits_memory.debug_library(),
        Engine(EngineOptions(model_dir, device="cpu", **chosen)) as engine,
    ):
        return bits_memory.weights_of(engine, num_bytes)


@pytest.mark.parametrize("layout", ["expert_parallel", "tensor_parallel"])
@pytest.mark.parametrize("synthetic", [False, True], ids=["loaded", "random"])
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_the_memory_of_the_trunk_stays(world_size, synthetic, layout):
    chosen = {"world_size": world_size, "synthetic": synthetic, "expert_layout": layout}
    plain, loaded = weights(CAPITALS, **chosen), weights(CAPITALS, **chosen, **MTP)
    num_bytes = int(plain["bytes"])
    assert weights(CAPITALS, num_bytes, **chosen, **MTP) == plain
    assert int(loaded["bytes"]) > num_bytes
    assert loaded["rank 0"] != plain["rank 0"]


@pytest.mark.parametrize("num_layers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_random_weights_of_the_trunk_stay(num_layers, world_size):
    rows = []
    for options in (OFF, MTP):
        chosen = synthetic_options(num_layers=num_layers, world_size=world_size, **options)
        with Engine(chosen) as engine:
            assert engine.info()["num_prediction_layers"] == (options is MTP)
            rows.append(engine.prefill([1, 2, 3], all_positions=True)[1].copy())
    assert same_bits(*rows)


def test_a_cut_keeps_it_in_the_format_of_the_files():
    options = {"device": "cpu", "synthetic": True}
    layers = [
        plan(EngineOptions(LARGE, num_layers=count, **options, **MTP))["checkpoint_bytes"]
        - plan(EngineOptions(LARGE, num_layers=count, **options))["checkpoint_bytes"]
        for count in (0, 1, 3)
    ]
    assert layers[0] == layers[1] == layers[2] > 0


def test_a_second_layer_is_skipped(tmp_path):
    one = plan_of(write(tmp_path / "1", small_config(num_nextn_predict_layers=1)), **MTP)
    two = plan_of(write(tmp_path / "2", small_config(num_nextn_predict_layers=2)), **MTP)
    assert two["ranks"] == one["ranks"]
    assert two["num_parameters"] == one["num_parameters"] < two["num_parameters_with_nextn"]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("own", [(), (HEAD,), (EMBEDDING,), (HEAD, EMBEDDING)], ids=str)
def test_a_head_and_an_embedding_of_its_own(own, tied, tmp_path):
    config = small_config(num_nextn_predict_layers=1, tie_word_embeddings=tied)
    directory = write(tmp_path / "model", config, prediction_has_own_vocabulary=True)
    tensors = read_tensors(directory)
    embedding = tensors["model.embed_tokens.weight"]
    shared = {HEAD: embedding if tied else tensors["lm_head.weight"], EMBEDDING: embedding}
    write_tensors(directory, {**tensors, **{k: v for k, v in shared.items() if k not in own}})
    plain, loaded = plan_of(directory, **OFF), plan_of(directory, **MTP)
    shared_parameters = (2 - len(own)) * VOCABULARY_SIZE * HIDDEN_SIZE
    assert loaded["num_parameters"] == plain["num_parameters_with_nextn"] - shared_parameters
    assert same_bits(logits(directory), logits(directory, **MTP))


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_head_of_its_own_is_split_as_the_models(world_size, tmp_path):
    config = small_config(num_nextn_predict_layers=1)
    shared = write(tmp_path / "shared", config)
    own = write(tmp_path / "own", config, prediction_has_own_vocabulary=True)
    sizes = [
        plan_of(path, world_size=world_size, **MTP)["ranks"][0]["weight_bytes"]
        for path in (shared, own)
    ]
    embedding = 2 * VOCABULARY_SIZE * HIDDEN_SIZE
    assert sizes[1] - sizes[0] == embedding + embedding // world_size


def test_it_drafts_one_token(model):
    with Engine(
        EngineOptions(model, device="cpu", max_seq=64, max_batch=2, num_threads=1, **MTP)
    ) as engine:
        assert engine.info()["max_draft_tokens"] == 1
    message = refusal(model, max_draft_tokens=2, **MTP)
    assert message.startswith("max_draft_tokens is 2; expected 1")


@pytest.mark.parametrize("length", [1.0, 1.84, 2.0])
def test_a_forced_acceptance_of_its_draft(length):
    assert plan_of(CAPITALS, synthetic=True, acceptance_length=length, **MTP)["fits"]


def test_a_forced_acceptance_of_more_than_its_draft_is_refused():
    with pytest.raises(EngineError, match=r"acceptance_length is 2\.5; expected 1 to 2"):
        plan_of(CAPITALS, synthetic=True, acceptance_length=2.5, **MTP)


@pytest.mark.parametrize(
    ("name", "words"),
    [(FIRST_TENSOR, "F32"), (HEAD, "head.dtype")],
    ids=lambda part: part.removeprefix(LAYER),
)
def test_a_device_that_cannot_run_it_is_said(name, words, tmp_path):
    config = ignoring("model.layers.3.eh_proj") | {"num_nextn_predict_layers": 1}
    directory = write(tmp_path / "model", config, prediction_has_own_vocabulary=True)
    options = {"device": "cuda", "world_size": 1, "device_memory_bytes": TERABYTE}
    assert plan(EngineOptions(directory, **options, **MTP))["fits"]
    tensors = read_tensors(directory)
    write_tensors(directory, {**tensors, name: widened(tensors[name])})
    assert plan(EngineOptions(directory, **options))["fits"]
    with pytest.raises(EngineError, match=f"device cuda cannot run.*{words}") as caught:
        plan(EngineOptions(directory, **options, **MTP))
    assert caught.value.status == Status.GLM_NOT_SUPPORTED

"""Unsound values of config.json and of the options are refused by name."""

import json
from pathlib import Path

import pytest

from glm_engine.core.engine import Engine, EngineOptions, inspect_checkpoint, plan
from glm_engine.core.errors import EngineError, Status
from tests.engine import tamper

REFUSALS = {
    Status.GLM_INVALID_CHECKPOINT,
    Status.GLM_NOT_SUPPORTED,
    Status.GLM_INVALID_ARGUMENT,
}

REQUIRED = [
    "model_type",
    "hidden_size",
    "num_hidden_layers",
    "vocab_size",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "intermediate_size",
    "first_k_dense_replace",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "rms_norm_eps",
    "rope_theta",
]

VALUES = [
    ("hidden_size", 0),
    ("hidden_size", -64),
    ("hidden_size", 2**40),
    ("hidden_size", 64.5),
    ("hidden_size", "64"),
    ("num_hidden_layers", 10**6),
    ("n_routed_experts", 65536),
    ("n_shared_experts", 65),
    ("vocab_size", True),
    ("num_key_value_heads", 3),
    ("num_experts_per_tok", 9),
    ("rms_norm_eps", 0),
    ("rms_norm_eps", -1e-5),
    ("rms_norm_eps", "small"),
    ("rope_theta", 0),
    ("partial_rotary_factor", 1.5),
    ("partial_rotary_factor", 0.07),
    ("routed_scaling_factor", -1),
    ("n_group", 2),
    ("topk_group", 4),
    ("model_type", "llama"),
    ("hidden_act", "gelu"),
    ("attention_bias", "yes"),
    ("eos_token_id", 128),
    ("eos_token_id", [0, -1]),
    ("eos_token_id", "0"),
    ("eos_token_id", list(range(17))),
    ("architectures", []),
    ("rope_scaling", {"type": "yarn", "factor": 4}),
    ("rope_parameters", {"rope_type": "linear", "rope_theta": 1e6}),
    ("rope_parameters", [1]),
    ("torch_dtype", "float16"),
    ("quantization_config", []),
]

QUANTISATION = [
    ("quant_method", "gptq"),
    ("format", "int-quantized"),
    ("kv_cache_scheme", "fp8"),
    ("config_groups", {}),
    ("config_groups", None),
    ("ignore", "lm_head"),
    ("ignore", [1]),
    ("ignore", ["re:(?=x)"]),
    ("ignore", ["re:[a"]),
]

GROUP = [
    ("weights", "num_bits", 4),
    ("weights", "type", "int"),
    ("weights", "strategy", "block"),
    ("weights", "symmetric", False),
    ("weights", "dynamic", True),
    ("input_activations", "strategy", "tensor"),
    ("input_activations", "dynamic", False),
]


@pytest.fixture(scope="module")
def sound_config(tmp_path_factory) -> dict:
    directory = tamper.small_checkpoint(tmp_path_factory.mktemp("sound"))
    return json.loads((directory / "config.json").read_text(encoding="utf-8"))


def refusal(tmp_path: Path, config: object) -> str:
    """The message with which a config.json alone is refused."""
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    with pytest.raises(EngineError) as caught:
        inspect_checkpoint(path)
    assert caught.value.status in REFUSALS
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("key", REQUIRED)
def test_missing_field_is_named(key, sound_config, tmp_path):
    config = {name: value for name, value in sound_config.items() if name != key}
    assert f"{key} is missing" in refusal(tmp_path, config)


@pytest.mark.parametrize(("key", "value"), VALUES)
def test_wrong_value_is_named(key, value, sound_config, tmp_path):
    message = refusal(tmp_path, {**sound_config, "num_hidden_layers": 64, key: value})
    expected = {"rope_scaling": "type", "rope_parameters": "rope_"}.get(key, key)
    assert expected in message


@pytest.mark.parametrize(("key", "value"), QUANTISATION)
def test_wrong_quantisation_is_named(key, value, sound_config, tmp_path):
    quantisation = {**sound_config["quantization_config"], key: value}
    message = refusal(tmp_path, {**sound_config, "quantization_config": quantisation})
    assert key in message


@pytest.mark.parametrize(("part", "key", "value"), GROUP)
def test_wrong_scheme_is_named(part, key, value, sound_config, tmp_path):
    config = json.loads(json.dumps(sound_config))
    config["quantization_config"]["config_groups"]["group_0"][part][key] = value
    assert key in refusal(tmp_path, config)


def test_weight_only_quantisation_is_refused(sound_config, tmp_path):
    config = json.loads(json.dumps(sound_config))
    config["quantization_config"]["config_groups"]["group_0"]["input_activations"] = None
    assert "input_activations" in refusal(tmp_path, config)


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 10_000, '{"a":1,"a":2}', "\x00"])
def test_config_that_is_no_object(text, tmp_path):
    refusal(tmp_path, text)


@pytest.mark.parametrize("value", [0, [0], [0, 1], None])
def test_eos_token_forms(value, sound_config, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**sound_config, "eos_token_id": value}), encoding="utf-8")
    assert inspect_checkpoint(path)["problems"] == []


def test_rope_parameters_of_transformers_5(sound_config, tmp_path):
    config = {k: v for k, v in sound_config.items() if k not in {"rope_theta"}}
    config.pop("partial_rotary_factor")
    rope = {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "rope_parameters": rope}), encoding="utf-8")
    assert inspect_checkpoint(path)["problems"] == []


def open_model(directory: Path, **options) -> None:
    chosen = {"max_seq": 64, "max_batch": 2, "num_threads": 1, **options}
    Engine(EngineOptions(model_dir=directory, device="cpu", **chosen)).close()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tamper.small_checkpoint(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"world_size": 3}, ["world_size 3", "num_attention_heads", "8"]),
        ({"world_size": 4}, ["world_size 4", "num_key_value_heads", "2"]),
        ({"world_size": 65}, ["world_size", "65"]),
        ({"world_size": -1}, ["world_size", "-1"]),
        ({"max_batch": -1}, ["max_batch", "-1"]),
        ({"max_seq": 513}, ["max_seq", "513", "max_position_embeddings", "512"]),
        ({"max_seq": -5}, ["max_seq", "-5"]),
        ({"page_size": -1}, ["page_size", "-1"]),
        ({"num_pages": -1}, ["num_pages", "-1"]),
        ({"max_step_tokens": -1}, ["max_step_tokens", "-1"]),
        ({"prefill_chunk": -1}, ["prefill_chunk", "-1"]),
        ({"max_queue": -1}, ["max_queue", "-1"]),
        ({"num_threads": -1}, ["num_threads", "-1"]),
        ({"max_logit_rows": -1}, ["max_logit_rows", "-1"]),
        ({"memory_limit_bytes": -1}, ["memory_limit_bytes", "-1"]),
        ({"kv_dtype": 7}, ["kv_dtype", "7"]),
        ({"kv_dtype": 1}, ["kv_dtype", "bfloat16"]),
    ],
)
def test_wrong_option_is_named(options, words, model):
    with pytest.raises(EngineError) as caught:
        open_model(model, **options)
    assert caught.value.status in REFUSALS
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("device", ["tpu", "CPU", "cpu "])
def test_unknown_device(device, model):
    with pytest.raises(EngineError, match="auto, cpu, cuda or futhark"):
        Engine(EngineOptions(model_dir=model, device=device))


def test_library_dir_without_a_device_library(model, tmp_path):
    with pytest.raises(EngineError, match=r"libglm_cpu\.so"):
        open_model(model, library_dir=tmp_path)


def test_pool_too_small_for_one_request(model):
    with pytest.raises(EngineError, match="too small for one request") as caught:
        open_model(model, num_pages=3, page_size=16, max_seq=64)
    assert caught.value.status == Status.GLM_OUT_OF_MEMORY
    open_model(model, num_pages=4, page_size=16, max_seq=64)


def test_memory_limit_too_small(model):
    with pytest.raises(EngineError, match=r"100\.00 kB is available") as caught:
        open_model(model, memory_limit_bytes=100_000)
    assert caught.value.status == Status.GLM_OUT_OF_MEMORY


def test_zero_pages_of_memory_are_refused_by_plan_too(model):
    options = EngineOptions(
        model_dir=model, device="cpu", max_seq=64, max_batch=2, memory_limit_bytes=100_000
    )
    document = plan(options)
    assert document["fits"] is False
    assert "100.00 kB is available" in document["reason"]


QUANTISED_MODULE = "model.layers.0.mlp.up_proj"


def test_quantised_weight_that_the_config_ignores(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.change_quantisation(directory, lambda q: q["ignore"].append(QUANTISED_MODULE))
    with pytest.raises(EngineError, match=r"leaves model\.layers\.0\.mlp\.up_proj unquantized"):
        open_model(directory)


def test_plain_weights_that_the_config_calls_quantised(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model", fp8=False)
    quantised = tamper.small_checkpoint(tmp_path / "quantised")
    (directory / "config.json").write_text((quantised / "config.json").read_text())
    with pytest.raises(EngineError, match=r"says that model\.layers\.0\.self_attn\.q_proj is"):
        open_model(directory)


def test_shape_that_disagrees_with_the_config(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.change_config(directory, intermediate_size=48)
    with pytest.raises(EngineError) as caught:
        open_model(directory)
    assert "mlp.gate_proj.weight: expected shape [48, 64]" in str(caught.value)
    assert "[96, 64]" in str(caught.value)

"""What the engine does not compute is refused by name, before a weight is read."""

import copy
import json
from pathlib import Path

import pytest

from glm_engine.core.engine import EngineOptions, inspect_checkpoint, plan
from glm_engine.core.errors import EngineError, Status
from tests.engine import tamper

NUM_LAYERS = 3
FULL = ["full_attention"] * NUM_LAYERS
SLIDING = ["sliding_attention", "full_attention", "full_attention"]
LAYERS = ["dense", "sparse", "sparse"]
ROTATE = {"type": "hadamard", "apply": [{"location": "input", "targets": ["Linear"]}]}

REFUSED = [
    ({"layer_types": SLIDING, "sliding_window": 128}, ['layer_types[0] is "sliding_attention"']),
    ({"layer_types": ["full_attention", "linear_attention"]}, ["layer_types[1]", "full_attention"]),
    ({"layer_types": "sliding_attention"}, ["layer_types", "a list"]),
    ({"sliding_window": 128}, ["sliding_window is 128"]),
    ({"sliding_window": 128, "use_sliding_window": True}, ["sliding_window is 128"]),
    ({"attention_chunk_size": 128}, ["attention_chunk_size is 128"]),
    ({"attn_logit_softcapping": 50.0}, ["attn_logit_softcapping is 50"]),
    ({"final_logit_softcapping": 30.5}, ["final_logit_softcapping is 30.5"]),
    ({"router_logit_softcapping": 30.0}, ["router_logit_softcapping is 30"]),
    ({"scoring_func": "softmax"}, ['scoring_func is "softmax"', '"sigmoid"']),
    ({"score_func": "softmax"}, ['score_func is "softmax"', '"sigmoid"']),
    ({"scoring_func": 1}, ["scoring_func is 1", '"sigmoid"']),
    ({"topk_method": "group_limited_greedy"}, ['topk_method is "group_limited_greedy"']),
    ({"topk_method": "greedy"}, ['topk_method is "greedy"', '"noaux_tc"']),
    ({"hidden_act": "gelu_pytorch_tanh"}, ['hidden_act is "gelu_pytorch_tanh"', '"silu"']),
    ({"hidden_activation": "gelu"}, ['hidden_activation is "gelu"', '"silu"']),
    ({"mlp_bias": True}, ["mlp_bias is true"]),
    ({"moe_layer_freq": 2}, ["moe_layer_freq is 2"]),
    ({"moe_layer_freq": [0, 1, 0]}, ["moe_layer_freq[2] is 0", "1"]),
    ({"mlp_layer_types": ["dense", "sparse", "dense"]}, ['mlp_layer_types[2] is "dense"']),
    ({"mlp_layer_types": ["sparse", "sparse", "sparse"]}, ['mlp_layer_types[0] is "sparse"']),
    ({"decoder_sparse_step": 2}, ["decoder_sparse_step is 2"]),
    ({"mlp_only_layers": [2]}, ["mlp_only_layers"]),
    ({"clip_qkv": 8.0}, ["clip_qkv is 8"]),
    ({"query_pre_attn_scalar": 256}, ["query_pre_attn_scalar is 256", "16"]),
    ({"attention_multiplier": 0.0078125}, ["attention_multiplier is 0.0078125", "0.25"]),
    ({"logits_scaling": 8}, ["logits_scaling is 8"]),
    ({"logit_scale": 0.0625}, ["logit_scale is 0.0625"]),
    ({"residual_multiplier": 0.22}, ["residual_multiplier is 0.22"]),
    ({"embedding_multiplier": 12.0}, ["embedding_multiplier is 12"]),
    ({"rms_norm_type": "layernorm"}, ['rms_norm_type is "layernorm"']),
    ({"layernorm_zero_centered": True}, ["layernorm_zero_centered is true"]),
    ({"rms_norm_unit_offset": True}, ["rms_norm_unit_offset is true"]),
    ({"attention_sinks": True}, ["attention_sinks is true"]),
    ({"swiglu_limit": 7.0}, ["swiglu_limit is 7"]),
    ({"use_parallel_residual": True}, ["use_parallel_residual is true"]),
    ({"rope_interleave": True}, ["rope_interleave is true"]),
    ({"rope_ratio": 50}, ["rope_ratio is 50"]),
    ({"no_rope_layers": [1, 1, 0]}, ["no_rope_layers[2] is 0"]),
    ({"rotary_dim": 16}, ["rotary_dim is 16", "8"]),
    ({"is_causal": False}, ["is_causal is false"]),
    ({"use_bidirectional_attention": True}, ["use_bidirectional_attention is true"]),
    ({"kv_lora_rank": 512}, ["kv_lora_rank is 512"]),
    ({"qk_norm": False}, ["qk_norm is false", "true"]),
    ({"use_qk_norm": False, "qk_layernorm": True}, ["qk_layernorm is true", "false"]),
    ({"use_routing_bias": False}, ["use_routing_bias is false"]),
    ({"v_head_dim": 128}, ["v_head_dim is 128", "16"]),
    ({"window_size": 64}, ["window_size is 64"]),
    ({"hybrid_layer_pattern": [0, 1, 0]}, ["hybrid_layer_pattern[1] is 1", "0"]),
    ({"index_topk": 2048}, ["index_topk is 2048"]),
    ({"qk_norm_type": "per_layer"}, ['qk_norm_type is "per_layer"']),
    ({"compression_config": {"format": "marlin-24"}}, ["compression_config is an object"]),
]

NEUTRAL = [
    {"layer_types": FULL, "sliding_window": 128},
    {"layer_types": FULL, "sliding_window": None},
    {"sliding_window": 128, "use_sliding_window": False, "max_window_layers": 2},
    {"sliding_window": 512},
    {"attn_logit_softcapping": None, "final_logit_softcapping": 0.0},
    {"scoring_func": "sigmoid", "topk_method": "noaux_tc"},
    {"scoring_func": None, "topk_method": None},
    {"hidden_act": None},
    {"mlp_bias": False},
    {"moe_layer_freq": 1},
    {"moe_layer_freq": [0, 1, 1]},
    {"mlp_layer_types": LAYERS},
    {"mlp_only_layers": [], "decoder_sparse_step": 1},
    {"query_pre_attn_scalar": 16, "attention_multiplier": 0.25},
    {"logits_scaling": 1.0, "residual_multiplier": 1, "embedding_multiplier": None},
    {"rms_norm_type": "rmsnorm", "layernorm_zero_centered": False},
    {"attention_dropout": 0.1, "initializer_range": 0.5, "router_aux_loss_coef": 0.1},
    {"no_rope_layers": [1, 1, 1]},
    {"rotary_dim": 8, "v_head_dim": 16, "qk_norm": True, "use_routing_bias": True},
    {"hybrid_layer_pattern": [0, 0, 0], "window_size": None},
    {"rope_interleave": False, "is_causal": True},
    {"is_causal": None, "qk_norm": None, "use_routing_bias": None},
    {"a_key_that_nobody_knows": {"very": "strange"}},
]

ARGUMENTS = [
    ("weights", "actorder", "group"),
    ("weights", "block_structure", [128, 128]),
    ("weights", "group_size", 128),
    ("input_activations", "actorder", "weight"),
    ("input_activations", "block_structure", "128x128"),
    ("input_activations", "group_size", 64),
    ("input_activations", "symmetric", False),
    ("input_activations", "dynamic", None),
    ("weights", "symmetric", None),
]

QUANTISATIONS = [
    ({"transform_config": {"config_groups": {"u": ROTATE}}}, ["transform_config"]),
    ({"transform_config": {"config_groups": {}, "rotate": "yes"}}, ["transform_config"]),
    ({"transform_config": "hadamard"}, ["transform_config"]),
    (
        {"sparsity_config": {"format": "sparse-24-bitmask"}},
        ['format is "sparse-24-bitmask"', '"dense"'],
    ),
    ({"sparsity_config": {"sparsity_structure": "2:4"}}, ["sparsity_config.format is missing"]),
    ({"sparsity_config": [1]}, ["sparsity_config", "an object"]),
    ({"quantization_status": "initialized"}, ['quantization_status is "initialized"']),
    (
        {"quantization_status": "calibration"},
        ['quantization_status is "calibration"', '"compressed"'],
    ),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ["weight_block_size"]),
    ({"weight_block_size": [128, 128]}, ["weight_block_size"]),
    ({"quant_method": "modelopt"}, ['quant_method is "modelopt"']),
    ({"quant_method": "awq", "bits": 4}, ['quant_method is "awq"']),
    ({"quant_method": "bitsandbytes"}, ['quant_method is "bitsandbytes"']),
    ({"format": "nvfp4-pack-quantized"}, ['quantization_config.format is "nvfp4-pack-quantized"']),
    ({"format": "mixed-precision"}, ['quantization_config.format is "mixed-precision"']),
    ({"kv_cache_scheme": {"type": "float", "num_bits": 8, "strategy": "channel"}}, ["strategy"]),
    ({"kv_cache_scheme": {"type": "float", "num_bits": 8, "group_size": 16}}, ["group_size"]),
]

HARMLESS = [
    {"transform_config": None, "sparsity_config": None, "version": "0.13.0"},
    {"transform_config": {}, "sparsity_config": {}},
    {"transform_config": {"config_groups": {}}},
    {"sparsity_config": {"format": "dense", "global_sparsity": 0.1}},
    {"quantization_status": "frozen", "global_compression_ratio": 1.5},
    {"quantization_status": None},
    {"kv_cache_scheme": {"type": "float", "num_bits": 8, "strategy": "tensor", "dynamic": False}},
]


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    return tamper.small_checkpoint(tmp_path_factory.mktemp("sound"))


@pytest.fixture(scope="module")
def sound_config(sound) -> dict:
    return json.loads((sound / "config.json").read_text(encoding="utf-8"))


def written(directory: Path, config: dict) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def expect_refusal(path: Path, words: list[str]) -> None:
    """`inspect` and `plan` refuse a config alike: one line with all of the words."""
    for refuse in (inspect_checkpoint, lambda p: plan(EngineOptions(model_dir=p, device="cpu"))):
        with pytest.raises(EngineError) as caught:
            refuse(path)
        assert caught.value.status in {Status.GLM_NOT_SUPPORTED, Status.GLM_INVALID_CHECKPOINT}
        message = str(caught.value)
        assert "config.json: " in message
        assert "\n" not in message
        assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_would_change_the_result(changes, words, sound_config, tmp_path):
    expect_refusal(written(tmp_path, {**sound_config, **changes}), words)


@pytest.mark.parametrize("changes", NEUTRAL)
def test_what_changes_nothing(changes, sound_config, tmp_path):
    assert inspect_checkpoint(written(tmp_path, {**sound_config, **changes}))["problems"] == []


@pytest.mark.parametrize(("changes", "words"), QUANTISATIONS)
def test_foreign_quantisation(changes, words, sound_config, tmp_path):
    quantisation = {**sound_config["quantization_config"], **changes}
    expect_refusal(written(tmp_path, {**sound_config, "quantization_config": quantisation}), words)


@pytest.mark.parametrize("changes", HARMLESS)
def test_harmless_quantisation(changes, sound_config, tmp_path):
    quantisation = {**sound_config["quantization_config"], **changes}
    path = written(tmp_path, {**sound_config, "quantization_config": quantisation})
    assert inspect_checkpoint(path)["problems"] == []


def with_group(sound_config: dict, change) -> dict:
    config = copy.deepcopy(sound_config)
    change(config["quantization_config"]["config_groups"]["group_0"])
    return config


@pytest.mark.parametrize(("part", "key", "value"), ARGUMENTS)
def test_foreign_arguments_of_a_scheme(part, key, value, sound_config, tmp_path):
    config = with_group(sound_config, lambda group: group[part].update({key: value}))
    name = f"quantization_config.config_groups.group_0.{part}.{key} is "
    expect_refusal(written(tmp_path, config), [name])


@pytest.mark.parametrize("name", ["pack-quantized", "int-quantized", "nvfp4-pack-quantized"])
def test_foreign_format_of_a_group(name, sound_config, tmp_path):
    config = with_group(sound_config, lambda group: group.update(format=name))
    where = "quantization_config.config_groups.group_0.format"
    expect_refusal(written(tmp_path, config), [f'{where} is "{name}"', '"float-quantized"'])


def test_format_of_a_group_that_is_the_whole_ones(sound_config, tmp_path):
    config = with_group(sound_config, lambda group: group.update(format="float-quantized"))
    assert inspect_checkpoint(written(tmp_path, config))["problems"] == []


def test_ignored_class_of_linears(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model", fp8=False)
    quantised = tamper.small_checkpoint(tmp_path / "quantised")
    config = json.loads((quantised / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"]["ignore"] = ["Linear"]
    written(directory, config)
    assert inspect_checkpoint(directory)["problems"] == []


@pytest.mark.parametrize("field", ["quant_algo", "kv_cache_quant_algo"])
def test_side_file_of_modelopt(field, tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.change_config(directory, quantization_config=None)
    side = {"producer": {"name": "modelopt"}, "quantization": {field: "FP8"}}
    (directory / "hf_quant_config.json").write_text(json.dumps(side), encoding="utf-8")
    with pytest.raises(EngineError) as caught:
        inspect_checkpoint(directory)
    assert f'hf_quant_config.json: quantization.{field} is "FP8"' in str(caught.value)
    assert caught.value.status == Status.GLM_NOT_SUPPORTED


def test_side_file_of_modelopt_that_says_nothing(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model", fp8=False)
    side = {"quantization": {"quant_algo": None, "kv_cache_quant_algo": None}}
    (directory / "hf_quant_config.json").write_text(json.dumps(side), encoding="utf-8")
    assert inspect_checkpoint(directory)["problems"] == []


def test_fp8_weights_without_a_quantization_config(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.change_config(directory, quantization_config=None)
    message = inspect_checkpoint(directory)["problems"][0]["message"]
    assert "config.json has no quantization_config" in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"torch_dtype": "float16"}, ['"bfloat16"', '"float32"', '"float16"']),
        ({"head_dim": None, "num_attention_heads": 64}, ["head_dim", "is 1", "2 or more"]),
        ({"n_routed_experts": None}, ["n_routed_experts is null"]),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "default"}}},
            ["rope_parameters.full_attention: separate RoPE parameters per layer type"],
        ),
    ],
)
def test_true_reasons(changes, words, sound_config, tmp_path):
    config = {**sound_config, **changes}
    expect_refusal(written(tmp_path, config), words)


@pytest.mark.parametrize("group", ["FP8_DYNAMIC", ["Linear"], None])
def test_a_group_that_is_no_object(group, sound_config, tmp_path):
    config = copy.deepcopy(sound_config)
    config["quantization_config"]["config_groups"] = {"FP8": group}
    words = ["quantization_config.config_groups.FP8", "expected an object"]
    expect_refusal(written(tmp_path, config), words)


@pytest.mark.parametrize("dtype", ["I8", "F8_E5M2"])
def test_quantised_weight_of_another_type(dtype, tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    name = "model.layers.1.self_attn.q_proj.weight"
    shard = tamper.shard_of(directory, name)
    tamper.change_header(shard, lambda header: header[name].update(dtype=dtype))
    (problem,) = inspect_checkpoint(directory)["problems"]
    assert problem["message"].startswith("expected dtype F8_E4M3 (")
    assert problem["message"].endswith(f"got {dtype}")


def tie(directory: Path, dtype: str, shape: list[int], data: bytes) -> list[str]:
    """The problems of a tied model that brings such a head."""
    tamper.change_config(directory, tie_word_embeddings=True)
    tamper.add_tensor(directory, "lm_head.weight", dtype, shape, data)
    return [problem["message"] for problem in inspect_checkpoint(directory)["problems"]]


def table_of(directory: Path) -> tuple[list[int], bytes]:
    name = "model.embed_tokens.weight"
    header, data = tamper.split_shard(tamper.shard_of(directory, name))
    begin, end = header[name]["data_offsets"]
    return header[name]["shape"], data[begin:end]


def widened(bf16: bytes) -> bytes:
    return b"".join(b"\0\0" + bf16[i : i + 2] for i in range(0, len(bf16), 2))


def test_tied_head_of_another_dtype(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.drop_tensor(directory, "lm_head.weight")
    shape, data = table_of(directory)
    (message,) = tie(directory, "F32", shape, widened(data))
    assert "ties this tensor to model.embed_tokens.weight: expected the same dtype BF16" in message
    assert "got F32" in message
    assert "different values" not in message


def test_tied_head_of_another_shape(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.drop_tensor(directory, "lm_head.weight")
    (rows, columns), data = table_of(directory)
    (message,) = tie(directory, "BF16", [rows // 2, columns], data[: len(data) // 2])
    assert f"expected shape [{rows}, {columns}] according to config.json" in message


def test_tied_head_of_other_values(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    tamper.drop_tensor(directory, "lm_head.weight")
    shape, data = table_of(directory)
    (message,) = tie(directory, "BF16", shape, bytes(len(data)))
    assert "different values" in message

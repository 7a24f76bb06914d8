"""Random small configurations: name → config.json, and the checkpoint's seed of each."""

from collections.abc import Sequence
from copy import deepcopy

BASE = {
    "architectures": ["Glm4MoeForCausalLM"],
    "model_type": "glm4_moe",
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "dtype": "bfloat16",
    "eos_token_id": [1, 2],
    "pad_token_id": 1,
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 0,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "use_cache": True,
}

WIDE = {"initializer_range": 0.08}


def quantisation(ignore: list[str]) -> dict:
    """compressed-tensors as in GLM-4.7-FP8: channel scales, dynamic token scales."""
    number = {"num_bits": 8, "type": "float", "symmetric": True}
    weights = {**number, "strategy": "channel", "dynamic": False, "observer": "minmax"}
    inputs = {**number, "strategy": "token", "dynamic": True, "observer": None}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    return {
        "config_groups": {"group_0": {**group, "output_activations": None}},
        "format": "float-quantized",
        "ignore": ["lm_head", *ignore],
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }


def sizes(
    hidden: int, layers: int, heads: tuple[int, int, int], widths: tuple[int, int], vocab: int
) -> dict:
    num_heads, num_kv_heads, head_dim = heads
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_kv_heads,
        "head_dim": head_dim,
        "intermediate_size": widths[0],
        "moe_intermediate_size": widths[1],
        "vocab_size": vocab,
    }


def attention(qk_norm: bool, bias: bool) -> dict:
    return {"use_qk_norm": qk_norm, "attention_bias": bias}


def mixture(experts: int, per_token: int, shared: int, dense: int, scaling: float) -> dict:
    return {
        "n_routed_experts": experts,
        "num_experts_per_tok": per_token,
        "n_shared_experts": shared,
        "first_k_dense_replace": dense,
        "routed_scaling_factor": scaling,
    }


def fp8_config(*parts: dict, ignore: Sequence[str] = ()) -> dict:
    return {**plain_config(*parts), "quantization_config": quantisation(list(ignore))}


def plain_config(*parts: dict) -> dict:
    merged = deepcopy(BASE)
    for part in parts:
        merged.update(part)
    return merged


CONFIGS = {
    "bf16_like_4_7": plain_config(
        sizes(96, 3, (24, 2, 64), (128, 48), 197),
        attention(qk_norm=True, bias=True),
        mixture(8, 3, 1, 1, 2.5),
        WIDE,
    ),
    "fp8_like_4_7": fp8_config(
        sizes(96, 3, (24, 2, 64), (128, 48), 197),
        attention(qk_norm=True, bias=True),
        mixture(8, 3, 1, 1, 2.5),
    ),
    "bf16_like_air": plain_config(
        sizes(64, 2, (6, 2, 128), (96, 32), 160),
        attention(qk_norm=False, bias=True),
        mixture(6, 2, 1, 1, 1.0),
        WIDE,
    ),
    "fp8_odd_sizes": fp8_config(
        sizes(75, 3, (3, 1, 64), (93, 37), 211),
        attention(qk_norm=True, bias=False),
        mixture(7, 3, 1, 1, 1.7),
    ),
    "bf16_odd_sizes_no_shared": plain_config(
        sizes(51, 2, (3, 3, 64), (67, 29), 101),
        attention(qk_norm=False, bias=False),
        mixture(5, 2, 0, 0, 2.5),
        {"norm_topk_prob": False, "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-3},
        WIDE,
    ),
    "fp8_mixed_two_shared": fp8_config(
        sizes(64, 3, (12, 1, 128), (96, 48), 130),
        attention(qk_norm=False, bias=True),
        mixture(8, 2, 2, 2, 1.0),
        {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5e5,
                "partial_rotary_factor": 0.25,
            }
        },
        ignore=(
            "model.layers.0.mlp.gate_proj",
            "model.layers.0.mlp.up_proj",
            r"re:.*layers\.2\.self_attn\..*",
        ),
    ),
    "bf16_eight_ranks": plain_config(
        sizes(64, 2, (8, 8, 64), (128, 64), 192),
        attention(qk_norm=True, bias=True),
        mixture(16, 4, 1, 1, 2.5),
        WIDE,
    ),
    "fp8_eight_ranks": fp8_config(
        sizes(128, 3, (24, 8, 64), (256, 64), 256),
        attention(qk_norm=True, bias=True),
        mixture(16, 4, 1, 1, 2.5),
    ),
}

WORLD_SIZES = {
    "bf16_like_4_7": (1, 2),
    "fp8_like_4_7": (1, 2),
    "bf16_eight_ranks": (1, 2, 4, 8),
    "fp8_eight_ranks": (1, 2, 4, 8),
}

SEEDS = {name: 4700 + number for number, name in enumerate(CONFIGS)}


def is_quantised(name: str) -> bool:
    return "quantization_config" in CONFIGS[name]


FORMATS = {
    name: ("BF16" if number % 2 else "F32", 1 + number % 3) for number, name in enumerate(CONFIGS)
}

TEXT_LENGTHS = (1, 13, 35)

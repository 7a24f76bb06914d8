"""The shape of the capitals model, in config.json's own words."""

from typing import Any

VOCAB_SIZE = 2048
MAX_POSITION_EMBEDDINGS = 4096


def capitals_config(token_id: dict[str, int]) -> dict[str, Any]:
    """config.json of the capitals model without its quantisation, given the tokenizer's ids."""
    return {
        "architectures": ["Glm4MoeForCausalLM"],
        "attention_bias": True,
        "attention_dropout": 0.0,
        "pad_token_id": token_id["<|endoftext|>"],
        "eos_token_id": [
            token_id["<|endoftext|>"],
            token_id["<|user|>"],
            token_id["<|observation|>"],
        ],
        "head_dim": 32,
        "hidden_act": "silu",
        "hidden_size": 256,
        "partial_rotary_factor": 0.5,
        "initializer_range": 0.02,
        "intermediate_size": 512,
        "max_position_embeddings": MAX_POSITION_EMBEDDINGS,
        "model_type": "glm4_moe",
        "moe_intermediate_size": 128,
        "norm_topk_prob": True,
        "num_attention_heads": 16,
        "n_group": 1,
        "topk_group": 1,
        "n_routed_experts": 8,
        "n_shared_experts": 1,
        "routed_scaling_factor": 1.5,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "num_hidden_layers": 4,
        "num_key_value_heads": 8,
        "num_nextn_predict_layers": 1,
        "rms_norm_eps": 1e-05,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_qk_norm": True,
        "vocab_size": VOCAB_SIZE,
    }

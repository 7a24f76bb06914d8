"""The widths of a model, from its config.json."""

from collections.abc import Mapping
from ctypes import Structure, sizeof
from dataclasses import dataclass, replace
from typing import Any

from glm_engine.core.errors import BadInputError
from glm_engine.verify.device import BF16, FP8
from glm_engine.verify.header import structs
from glm_engine.verify.paging import Heads

MOST_ROWS = 256
MOST_CONTEXT = 2048
NO_FACTOR = 1.0
NEEDED = (
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "vocab_size",
)


@dataclass(frozen=True)
class ModelShape:
    """What decides the shapes of a model's operations on one device."""

    hidden_size: int
    heads: Heads
    rotary_dim: int
    theta: float
    epsilon: float
    intermediate_size: int
    moe_intermediate_size: int
    num_experts: int
    num_shared_experts: int
    top_k: int
    scaling_factor: float
    vocab_size: int
    has_bias: bool
    has_qk_norm: bool
    has_prediction_layer: bool
    is_quantised: bool

    @property
    def dtype(self) -> int:
        """The dtype of a linear's weights."""
        return FP8 if self.is_quantised else BF16

    @property
    def query_width(self) -> int:
        return self.heads.num_heads * self.heads.head_dim

    @property
    def shared_width(self) -> int:
        return self.num_shared_experts * self.moe_intermediate_size

    def reduced(self) -> "ModelShape":
        """The same kinds of operations at widths that a CPU computes in seconds."""
        kv_heads = min(self.heads.num_kv_heads, 2)
        group = self.heads.num_heads // self.heads.num_kv_heads
        experts = min(self.num_experts, 16)
        return replace(
            self,
            hidden_size=min(self.hidden_size, 512),
            heads=replace(self.heads, num_heads=group * kv_heads, num_kv_heads=kv_heads),
            intermediate_size=min(self.intermediate_size, 768),
            moe_intermediate_size=min(self.moe_intermediate_size, 192),
            num_experts=experts,
            top_k=min(self.top_k, experts),
            vocab_size=min(self.vocab_size, 4096),
        )

    def workspace(self, world_size: int = 1) -> Structure:
        kind = structs()["glm_workspace_shape"]
        return kind(
            struct_size=sizeof(kind),
            world_size=world_size,
            max_step_tokens=MOST_ROWS,
            max_decode_rows=MOST_ROWS,
            rows_per_sequence=1,
            max_context=MOST_CONTEXT,
            max_logit_rows=MOST_ROWS,
            hidden_size=self.hidden_size,
            num_heads=self.heads.num_heads,
            num_kv_heads=self.heads.num_kv_heads,
            head_dim=self.heads.head_dim,
            intermediate_size=max(self.intermediate_size, self.shared_width),
            moe_intermediate_size=self.moe_intermediate_size,
            num_local_experts=self.num_experts + self.num_shared_experts,
            top_k=self.top_k + self.num_shared_experts,
            vocab_size=self.vocab_size,
        )


def model_shape(config: Mapping[str, Any]) -> ModelShape:
    """Return the widths that a config.json states."""
    missing = [name for name in NEEDED if not isinstance(config.get(name), int)]
    if missing:
        raise BadInputError(f"config.json: expected whole numbers in {', '.join(missing)}")
    rope = {**config, **(config.get("rope_parameters") or {})}
    num_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    return ModelShape(
        hidden_size=config["hidden_size"],
        heads=Heads(num_heads, config["num_key_value_heads"], head_dim),
        rotary_dim=int(head_dim * rope.get("partial_rotary_factor", NO_FACTOR)),
        theta=float(rope.get("rope_theta", 10_000)),
        epsilon=float(config.get("rms_norm_eps", 1e-5)),
        intermediate_size=config["intermediate_size"],
        moe_intermediate_size=config["moe_intermediate_size"],
        num_experts=config["n_routed_experts"],
        num_shared_experts=config.get("n_shared_experts") or 0,
        top_k=config["num_experts_per_tok"],
        scaling_factor=float(config.get("routed_scaling_factor", NO_FACTOR)),
        vocab_size=config["vocab_size"],
        has_bias=bool(config.get("attention_bias")),
        has_qk_norm=bool(config.get("use_qk_norm")),
        has_prediction_layer=bool(config.get("num_nextn_predict_layers")),
        is_quantised=bool(config.get("quantization_config")),
    )

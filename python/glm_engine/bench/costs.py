"""Bytes and operations of one step, from config.json alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glm_engine.core.errors import BadInputError, no_checkpoint
from glm_engine.core.layout import CAPITALS, CONFIGS
from glm_engine.hub.names import find_checkpoint

SYNTHETIC = tuple(sorted(path.stem for path in CONFIGS.glob("*.json")))
PLAIN_BYTES = 2
SCALE_BYTES = 4
Shape = tuple[int, int]
"""Rows and columns."""


def config_path(wanted: str | Path) -> Path:
    """Return the config.json of a built-in model's name, or of a path."""
    if wanted in SYNTHETIC:
        return CONFIGS / f"{wanted}.json"
    path = Path(wanted)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise BadInputError(f"{wanted}: not a checkpoint: this folder has no config.json")
    if not path.is_file():
        known = ", ".join(SYNTHETIC)
        raise BadInputError(f"{wanted}: expected the path to a config.json, or one of {known}")
    return path


def config_of(model_dir: str | None, synthetic: str | None) -> tuple[str, Path]:
    """Return what `--model` or `--synthetic` names, and its config.json; capitals without both."""
    if model_dir is not None and synthetic:
        raise BadInputError("--model and --synthetic cannot be used together")
    if synthetic:
        return synthetic, config_path(synthetic)
    folder = str(CAPITALS) if model_dir is None else find_checkpoint(model_dir)
    if not folder or not Path(folder).is_dir():
        raise no_checkpoint(folder)
    return folder, config_path(folder)


@dataclass(frozen=True)
class Costs:
    """What a model's step must read and compute, on all devices together."""

    config: Mapping[str, Any]
    num_layers: int
    kv_bytes_per_token: int

    @property
    def linear_bytes(self) -> int:
        """Bytes of one weight of a linear: FP8 where the checkpoint is quantised."""
        return 1 if self.config.get("quantization_config") else PLAIN_BYTES

    @property
    def num_dense_layers(self) -> int:
        return min(int(self.config.get("first_k_dense_replace", 0)), self.num_layers)

    @property
    def num_moe_layers(self) -> int:
        return self.num_layers - self.num_dense_layers

    def matrix_bytes(self, rows: int, columns: int) -> int:
        scales = SCALE_BYTES * rows if self.linear_bytes == 1 else 0
        return rows * columns * self.linear_bytes + scales

    def head_width(self) -> int:
        c = self.config
        return int(c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])

    def attention_shapes(self) -> list[Shape]:
        c, hidden, width = self.config, self.config["hidden_size"], self.head_width()
        query = c["num_attention_heads"] * width
        return [(query + 2 * c["num_key_value_heads"] * width, hidden), (hidden, query)]

    def mlp_shapes(self, width: int) -> list[Shape]:
        hidden = self.config["hidden_size"]
        return [(2 * width, hidden), (hidden, width)] if width else []

    def expert_shapes(self) -> list[Shape]:
        return self.mlp_shapes(self.config["moe_intermediate_size"])

    def shared_shapes(self) -> list[Shape]:
        c = self.config
        return self.mlp_shapes((c.get("n_shared_experts") or 0) * c["moe_intermediate_size"])

    def bytes_of(self, shapes: Sequence[Shape]) -> int:
        return sum(self.matrix_bytes(rows, columns) for rows, columns in shapes)

    def experts_hit(self, num_tokens: float) -> float:
        """Expected experts with work in a layer when routing is uniform and independent."""
        c = self.config
        num_experts: int = c["n_routed_experts"]
        chance: float = c["num_experts_per_tok"] / num_experts
        missed: float = (1 - chance) ** num_tokens
        return num_experts * (1 - missed)

    def moe_layer_bytes(self, num_tokens: float) -> float:
        c = self.config
        router: int = c["n_routed_experts"] * c["hidden_size"] * PLAIN_BYTES
        experts = self.experts_hit(num_tokens) * self.bytes_of(self.expert_shapes())
        return router + experts + self.bytes_of(self.shared_shapes())

    def weight_bytes(self, num_tokens: float) -> float:
        """Weights that a step of so many tokens reads once, embedding rows included."""
        c = self.config
        attention = self.num_layers * self.bytes_of(self.attention_shapes())
        dense = self.num_dense_layers * self.bytes_of(self.mlp_shapes(c["intermediate_size"]))
        moe = self.num_moe_layers * self.moe_layer_bytes(num_tokens) if self.num_moe_layers else 0
        head: float = (c["vocab_size"] + num_tokens) * c["hidden_size"] * PLAIN_BYTES
        return attention + dense + moe + head

    def prediction_bytes(self, num_drafts: float) -> float:
        """Weights that the prediction layer reads for so many drafts: its block, and a head."""
        c, hidden = self.config, self.config["hidden_size"]
        block = self.bytes_of(self.attention_shapes()) + self.moe_layer_bytes(num_drafts)
        head: int = (2 * hidden + c["vocab_size"]) * hidden * PLAIN_BYTES
        return block + head

    def kv_bytes(self, batch: int, context: float) -> float:
        """KV read by one decode step, with draft tokens or without."""
        return batch * context * self.kv_bytes_per_token

    def active_parameters(self) -> int:
        """Parameters of the linears that each token passes, without the head."""
        c = self.config
        shapes = self.num_layers * self.attention_shapes()
        shapes += self.num_dense_layers * self.mlp_shapes(c["intermediate_size"])
        if self.num_moe_layers:
            chosen = c["num_experts_per_tok"] * self.expert_shapes()
            shapes += self.num_moe_layers * (chosen + self.shared_shapes())
        return sum(rows * columns for rows, columns in shapes)

    def prefill_flops(self, num_tokens: int) -> float:
        """2 x active linear parameters x tokens, and the causal half of the attention.

        Of a whole pass: that the engine leaves out rows of the last layer is not subtracted.
        """
        c = self.config
        pairs = num_tokens * (num_tokens + 1) / 2
        attention: float = (
            4 * self.num_layers * c["num_attention_heads"] * self.head_width() * pairs
        )
        return 2 * self.active_parameters() * num_tokens + attention

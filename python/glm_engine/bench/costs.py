"""Bytes and operations of one step, from config.json alone."""

from dataclasses import dataclass
from pathlib import Path

from glm_engine.core.errors import BadInputError, no_checkpoint
from glm_engine.core.layout import CAPITALS, CONFIGS
from glm_engine.hub.names import find_checkpoint

SYNTHETIC = tuple(sorted(path.stem for path in CONFIGS.glob("*.json")))
PLAIN_BYTES = 2
SCALE_BYTES = 4


def config_path(wanted):
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


def config_of(model_dir, synthetic):
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

    config: dict
    num_layers: int
    kv_bytes_per_token: int

    @property
    def linear_bytes(self):
        """Bytes of one weight of a linear: FP8 where the checkpoint is quantised."""
        return 1 if self.config.get("quantization_config") else PLAIN_BYTES

    @property
    def num_dense_layers(self):
        return min(self.config.get("first_k_dense_replace", 0), self.num_layers)

    @property
    def num_moe_layers(self):
        return self.num_layers - self.num_dense_layers

    def matrix_bytes(self, rows, columns):
        scales = SCALE_BYTES * rows if self.linear_bytes == 1 else 0
        return rows * columns * self.linear_bytes + scales

    def head_width(self):
        c = self.config
        return c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]

    def attention_shapes(self):
        c, hidden, width = self.config, self.config["hidden_size"], self.head_width()
        query = c["num_attention_heads"] * width
        return [(query + 2 * c["num_key_value_heads"] * width, hidden), (hidden, query)]

    def mlp_shapes(self, width):
        hidden = self.config["hidden_size"]
        return [(2 * width, hidden), (hidden, width)] if width else []

    def expert_shapes(self):
        return self.mlp_shapes(self.config["moe_intermediate_size"])

    def shared_shapes(self):
        c = self.config
        return self.mlp_shapes((c.get("n_shared_experts") or 0) * c["moe_intermediate_size"])

    def bytes_of(self, shapes):
        return sum(self.matrix_bytes(rows, columns) for rows, columns in shapes)

    def experts_hit(self, num_tokens):
        """Expected experts with work in a layer when routing is uniform and independent."""
        c = self.config
        chance = c["num_experts_per_tok"] / c["n_routed_experts"]
        return c["n_routed_experts"] * (1 - (1 - chance) ** num_tokens)

    def moe_layer_bytes(self, num_tokens):
        c = self.config
        router = c["n_routed_experts"] * c["hidden_size"] * PLAIN_BYTES
        experts = self.experts_hit(num_tokens) * self.bytes_of(self.expert_shapes())
        return router + experts + self.bytes_of(self.shared_shapes())

    def weight_bytes(self, num_tokens):
        """Weights that a step of so many tokens reads once, embedding rows included."""
        c = self.config
        attention = self.num_layers * self.bytes_of(self.attention_shapes())
        dense = self.num_dense_layers * self.bytes_of(self.mlp_shapes(c["intermediate_size"]))
        moe = self.num_moe_layers * self.moe_layer_bytes(num_tokens) if self.num_moe_layers else 0
        head = (c["vocab_size"] + num_tokens) * c["hidden_size"] * PLAIN_BYTES
        return attention + dense + moe + head

    def prediction_bytes(self, num_drafts):
        """Weights that the prediction layer reads for so many drafts: its block, and a head."""
        c, hidden = self.config, self.config["hidden_size"]
        block = self.bytes_of(self.attention_shapes()) + self.moe_layer_bytes(num_drafts)
        return block + (2 * hidden + c["vocab_size"]) * hidden * PLAIN_BYTES

    def kv_bytes(self, batch, context):
        """KV read by one decode step, with draft tokens or without."""
        return batch * context * self.kv_bytes_per_token

    def active_parameters(self):
        """Parameters of the linears that each token passes, without the head."""
        c = self.config
        attention = sum(rows * columns for rows, columns in self.attention_shapes())
        dense = sum(rows * columns for rows, columns in self.mlp_shapes(c["intermediate_size"]))
        total = self.num_layers * attention + self.num_dense_layers * dense
        if not self.num_moe_layers:
            return total
        experts = c["num_experts_per_tok"] * sum(r * k for r, k in self.expert_shapes())
        shared = sum(rows * columns for rows, columns in self.shared_shapes())
        return total + self.num_moe_layers * (experts + shared)

    def prefill_flops(self, num_tokens):
        """2 x active linear parameters x tokens, and the causal half of the attention.

        Of a whole pass: that the engine leaves out rows of the last layer is not subtracted.
        """
        c = self.config
        pairs = num_tokens * (num_tokens + 1) / 2
        attention = 4 * self.num_layers * c["num_attention_heads"] * self.head_width() * pairs
        return 2 * self.active_parameters() * num_tokens + attention

"""Every tensor of a glm4_moe checkpoint: name, shape and dtype, derived from config.json."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.checkpoint.quantise import is_ignored

Config = Mapping[str, Any]
"""What a config.json holds."""
DTYPE_BYTES = {"F8_E4M3": 1, "BF16": 2, "F32": 4}


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as the header of its shard describes it."""

    name: str
    dtype: str
    shape: Sequence[int]

    @property
    def num_elements(self) -> int:
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        return self.num_elements * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True)
class LayoutOptions:
    """What config.json leaves open."""

    scale_dtype: str = "F32"
    with_prediction_layers: bool = True
    prediction_has_own_vocabulary: bool = False


USUAL = LayoutOptions()


def plain_dtype(config: Config) -> str:
    """The dtype of whatever is not quantised: BF16, or F32 when the config says float32."""
    named = config.get("torch_dtype") or config.get("dtype") or "bfloat16"
    dtypes = {"bfloat16": "BF16", "float32": "F32"}
    if named not in dtypes:
        raise ValueError(f"torch_dtype: expected one of {sorted(dtypes)}, got {named!r}")
    return dtypes[named]


class Layout:
    """Walks the modules of a config in the order in which GLM's own files name them."""

    def __init__(self, config: Config, options: LayoutOptions) -> None:
        self.config = config
        self.options = options
        self.hidden_size = config["hidden_size"]
        quantisation = config.get("quantization_config")
        self.is_quantised = quantisation is not None
        self.ignore = quantisation["ignore"] if quantisation else []
        self.plain_dtype = plain_dtype(config)

    def specs(self) -> Iterator[TensorSpec]:
        """All tensors: embedding, layers, prediction layers, final norm, head."""
        config = self.config
        vocabulary = (config["vocab_size"], self.hidden_size)
        yield TensorSpec("model.embed_tokens.weight", self.plain_dtype, vocabulary)
        for layer in range(config["num_hidden_layers"]):
            yield from self._decoder_layer(layer)
        yield self._norm("model.norm")
        if not config.get("tie_word_embeddings", False):
            yield TensorSpec("lm_head.weight", self.plain_dtype, vocabulary)
        if self.options.with_prediction_layers:
            for extra in range(config.get("num_nextn_predict_layers") or 0):
                yield from self._prediction_layer(config["num_hidden_layers"] + extra)

    def _norm(self, module: str, size: int | None = None) -> TensorSpec:
        return TensorSpec(f"{module}.weight", self.plain_dtype, (size or self.hidden_size,))

    def _linear(
        self, module: str, rows: int, columns: int, bias: bool = False
    ) -> Iterator[TensorSpec]:
        quantised = self.is_quantised and not is_ignored(module, self.ignore)
        dtype = "F8_E4M3" if quantised else self.plain_dtype
        yield TensorSpec(f"{module}.weight", dtype, (rows, columns))
        if quantised:
            yield TensorSpec(f"{module}.weight_scale", self.options.scale_dtype, (rows, 1))
        if bias:
            yield TensorSpec(f"{module}.bias", self.plain_dtype, (rows,))

    def _attention(self, module: str) -> Iterator[TensorSpec]:
        config, head_dim = self.config, self.config["head_dim"]
        query_rows = config["num_attention_heads"] * head_dim
        key_rows = config["num_key_value_heads"] * head_dim
        bias = config.get("attention_bias", False)
        for name, rows in (("q", query_rows), ("k", key_rows), ("v", key_rows)):
            yield from self._linear(f"{module}.{name}_proj", rows, self.hidden_size, bias)
        yield from self._linear(f"{module}.o_proj", self.hidden_size, query_rows)
        if config.get("use_qk_norm", False):
            yield self._norm(f"{module}.q_norm", head_dim)
            yield self._norm(f"{module}.k_norm", head_dim)

    def _mlp(self, module: str, width: int) -> Iterator[TensorSpec]:
        for name in ("gate", "up"):
            yield from self._linear(f"{module}.{name}_proj", width, self.hidden_size)
        yield from self._linear(f"{module}.down_proj", self.hidden_size, width)

    def _experts(self, module: str) -> Iterator[TensorSpec]:
        config = self.config
        width, num_experts = config["moe_intermediate_size"], config["n_routed_experts"]
        yield TensorSpec(f"{module}.gate.weight", self.plain_dtype, (num_experts, self.hidden_size))
        yield TensorSpec(f"{module}.gate.e_score_correction_bias", "F32", (num_experts,))
        for expert in range(num_experts):
            yield from self._mlp(f"{module}.experts.{expert}", width)
        if num_shared := config.get("n_shared_experts") or 0:
            yield from self._mlp(f"{module}.shared_experts", width * num_shared)

    def _decoder_layer(self, layer: int) -> Iterator[TensorSpec]:
        module = f"model.layers.{layer}"
        yield self._norm(f"{module}.input_layernorm")
        yield from self._attention(f"{module}.self_attn")
        yield self._norm(f"{module}.post_attention_layernorm")
        if layer < self.config["first_k_dense_replace"]:
            yield from self._mlp(f"{module}.mlp", self.config["intermediate_size"])
        else:
            yield from self._experts(f"{module}.mlp")

    def _prediction_layer(self, layer: int) -> Iterator[TensorSpec]:
        module, hidden_size = f"model.layers.{layer}", self.hidden_size
        yield self._norm(f"{module}.enorm")
        yield self._norm(f"{module}.hnorm")
        yield from self._linear(f"{module}.eh_proj", hidden_size, 2 * hidden_size)
        yield from self._decoder_layer(layer)
        yield self._norm(f"{module}.shared_head.norm")
        if self.options.prediction_has_own_vocabulary:
            vocabulary = (self.config["vocab_size"], hidden_size)
            yield TensorSpec(f"{module}.embed_tokens.weight", self.plain_dtype, vocabulary)
            yield TensorSpec(f"{module}.shared_head.head.weight", self.plain_dtype, vocabulary)


def checkpoint_specs(config: Config, options: LayoutOptions = USUAL) -> list[TensorSpec]:
    """The tensors of a checkpoint with this config."""
    return list(Layout(config, options).specs())

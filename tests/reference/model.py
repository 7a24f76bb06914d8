"""The whole forward pass of glm4_moe in numpy, with every stage's input and output on request."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

import numpy as np

from tests.reference.attention import causal_attention
from tests.reference.checkpoint import Checkpoint
from tests.reference.experts import FeedForward, feed_forward, routed_experts
from tests.reference.linear import Linear, apply
from tests.reference.norm import rms_norm
from tests.reference.rope import rotate
from tests.reference.router import route
from tests.reference.variants import Variant

NO_ROUTES: Mapping[int, Sequence[int]] = MappingProxyType({})


class ExpertLayout(Enum):
    """How ranks share routed experts: whole experts each, or a slice of every one's width."""

    EXPERT_PARALLEL = "expert_parallel"
    TENSOR_PARALLEL = "tensor_parallel"


@dataclass(frozen=True)
class Options:
    dtype: type = np.float64
    world_size: int = 1
    expert_layout: ExpertLayout = ExpertLayout.EXPERT_PARALLEL
    variant: Variant = Variant.CORRECT

    @property
    def expert_slices(self) -> int:
        split_by_width = self.expert_layout is ExpertLayout.TENSOR_PARALLEL
        return self.world_size if split_by_width else 1


def rope_theta(config: dict) -> float:
    parameters = config.get("rope_parameters") or {}
    return parameters.get("rope_theta", config.get("rope_theta"))


def partial_rotary_factor(config: dict) -> float:
    parameters = config.get("rope_parameters") or {}
    return parameters.get("partial_rotary_factor", config.get("partial_rotary_factor", 0.5))


@dataclass(frozen=True)
class Attention:
    query: Linear
    key: Linear
    value: Linear
    output: Linear
    query_norm: np.ndarray | None
    key_norm: np.ndarray | None


@dataclass(frozen=True)
class Router:
    weight: np.ndarray
    bias: np.ndarray


@dataclass(frozen=True)
class Layer:
    input_norm: np.ndarray
    attention: Attention
    post_attention_norm: np.ndarray
    dense: FeedForward | None
    router: Router | None
    experts: list[FeedForward] = field(default_factory=list)
    shared: FeedForward | None = None


def read_attention(checkpoint: Checkpoint, prefix: str, dtype: type) -> Attention:
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    projections = [checkpoint.linear(f"{prefix}.{name}", dtype) for name in names]
    norms = [None, None]
    if checkpoint.config["use_qk_norm"]:
        norms = [checkpoint.vector(f"{prefix}.{name}_norm.weight", dtype) for name in "qk"]
    return Attention(*projections, *norms)


def read_feed_forward(checkpoint: Checkpoint, prefix: str, dtype: type) -> FeedForward:
    names = ("gate_proj", "up_proj", "down_proj")
    return FeedForward(*(checkpoint.linear(f"{prefix}.{name}", dtype) for name in names))


def read_layer(checkpoint: Checkpoint, number: int, dtype: type) -> Layer:
    config, prefix = checkpoint.config, f"model.layers.{number}"
    norms = [
        checkpoint.vector(f"{prefix}.{name}_layernorm.weight", dtype)
        for name in ("input", "post_attention")
    ]
    attention = read_attention(checkpoint, f"{prefix}.self_attn", dtype)
    if number < config["first_k_dense_replace"]:
        dense = read_feed_forward(checkpoint, f"{prefix}.mlp", dtype)
        return Layer(norms[0], attention, norms[1], dense, None)
    router = Router(
        checkpoint.vector(f"{prefix}.mlp.gate.weight", dtype),
        checkpoint.vector(f"{prefix}.mlp.gate.e_score_correction_bias", dtype),
    )
    names = [f"{prefix}.mlp.experts.{expert}" for expert in range(config["n_routed_experts"])]
    with ThreadPoolExecutor() as threads:
        experts = list(threads.map(lambda name: read_feed_forward(checkpoint, name, dtype), names))
    shared = None
    if config["n_shared_experts"]:
        shared = read_feed_forward(checkpoint, f"{prefix}.mlp.shared_experts", dtype)
    return Layer(norms[0], attention, norms[1], None, router, experts, shared)


class Trace(dict):
    """Arrays by "layers.N.stage": what each stage took and gave."""

    def layer(self, number: int) -> dict[str, np.ndarray]:
        prefix = f"layers.{number}."
        return {name[len(prefix) :]: self[name] for name in self if name.startswith(prefix)}


class ReferenceModel:
    """Weights of one checkpoint in one precision; forward passes over whole sequences."""

    def __init__(self, checkpoint: Checkpoint, options: Options = Options()):
        config = checkpoint.config
        if config.get("n_group", 1) != 1:
            raise ValueError(f"n_group {config['n_group']}, the reference knows only 1")
        self.config = config
        self.options = options
        self.embedding = checkpoint.vector("model.embed_tokens.weight", options.dtype)
        self.layers = [
            read_layer(checkpoint, number, options.dtype)
            for number in range(config["num_hidden_layers"])
        ]
        self.final_norm = checkpoint.vector("model.norm.weight", options.dtype)
        head = "model.embed_tokens" if config.get("tie_word_embeddings") else "lm_head"
        self.head = checkpoint.vector(f"{head}.weight", options.dtype)

    def logits(
        self,
        tokens: Sequence[int],
        trace: Trace | None = None,
        other_routes: Mapping[int, Sequence[int]] = NO_ROUTES,
    ) -> np.ndarray:
        """Token ids of one sequence → [tokens, vocab_size].

        other_routes: layer → rows whose last chosen expert gives way to the next one.
        """
        hidden = self.embedding[np.asarray(tokens, dtype=np.int64)]
        record = {} if trace is None else trace
        for number, layer in enumerate(self.layers):
            stages: dict[str, np.ndarray] = {}
            hidden = self.layer_output(layer, hidden, stages, other_routes.get(number, ()))
            record.update({f"layers.{number}.{name}": array for name, array in stages.items()})
        record["final.input"] = hidden
        record["final.norm"] = self.norm(hidden, self.final_norm)
        record["final.logits"] = record["final.norm"] @ self.head.T
        return record["final.logits"]

    def batch_logits(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return [self.logits(tokens) for tokens in sequences]

    def greedy(self, tokens: Sequence[int], num_new_tokens: int) -> list[int]:
        """The num_new_tokens most likely tokens, each by a forward pass over all before it."""
        sequence = list(tokens)
        for _ in range(num_new_tokens):
            sequence.append(int(np.argmax(self.logits(sequence)[-1])))
        return sequence[len(tokens) :]

    def norm(self, rows: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return rms_norm(rows, weight, self.config["rms_norm_eps"], self.options.variant)

    def layer_output(
        self, layer: Layer, hidden: np.ndarray, stages: dict, other_rows: Sequence[int] = ()
    ) -> np.ndarray:
        stages["input"] = hidden
        stages["attention_input"] = self.norm(hidden, layer.input_norm)
        stages["attention_output"] = self.attend(layer, stages["attention_input"], stages)
        stages["middle"] = hidden + stages["attention_output"]
        stages["mlp_input"] = self.norm(stages["middle"], layer.post_attention_norm)
        stages["mlp_output"] = self.mix(layer, stages["mlp_input"], stages, other_rows)
        return stages["middle"] + stages["mlp_output"]

    def attend(self, layer: Layer, rows: np.ndarray, stages: dict) -> np.ndarray:
        """Projections, norms of q and k, RoPE, attention and output projection of one layer."""
        attention, variant = layer.attention, self.options.variant
        for name in ("query", "key", "value"):
            projected = apply(getattr(attention, name), rows, variant=variant)
            stages[name] = projected.reshape(len(rows), -1, self.config["head_dim"])
        stages["turned_query"] = self.norm_and_turn(stages["query"], attention.query_norm)
        stages["turned_key"] = self.norm_and_turn(stages["key"], attention.key_norm)
        heads = causal_attention(
            stages["turned_query"], stages["turned_key"], stages["value"], variant
        )
        stages["heads"] = heads.reshape(len(rows), -1)
        return apply(attention.output, stages["heads"], self.options.world_size, variant)

    def norm_and_turn(self, heads: np.ndarray, norm_weight: np.ndarray | None) -> np.ndarray:
        variant = self.options.variant
        if norm_weight is None or variant is Variant.NO_QK_NORM:
            return self.turn(heads)
        if variant is Variant.QK_NORM_AFTER_ROPE:
            return self.norm(self.turn(heads), norm_weight)
        return self.turn(self.norm(heads, norm_weight))

    def turn(self, heads: np.ndarray) -> np.ndarray:
        factor = partial_rotary_factor(self.config)
        positions = np.arange(len(heads))
        return rotate(heads, positions, rope_theta(self.config), factor, self.options.variant)

    def mix(
        self, layer: Layer, rows: np.ndarray, stages: dict, other_rows: Sequence[int] = ()
    ) -> np.ndarray:
        """The dense layer, or the routed experts and the shared one."""
        options, variant = self.options, self.options.variant
        if layer.dense is not None:
            return feed_forward(layer.dense, rows, options.world_size, variant)
        scaling = self.config["routed_scaling_factor"]
        routes = route(
            rows,
            layer.router.weight,
            layer.router.bias,
            self.config["num_experts_per_tok"],
            scaling,
            self.config["norm_topk_prob"],
            variant,
            other_rows,
        )
        stages["route_experts"], stages["route_weights"] = routes.experts, routes.weights
        stages["route_margins"] = routes.margins
        mixed = routed_experts(layer.experts, rows, routes, options.expert_slices, variant)
        stages["routed_output"] = mixed
        if layer.shared is None or variant is Variant.NO_SHARED_EXPERT:
            return mixed
        stages["shared_output"] = feed_forward(layer.shared, rows, options.world_size, variant)
        if variant is Variant.SHARED_EXPERT_SCALED:
            return mixed + scaling * stages["shared_output"]
        return mixed + stages["shared_output"]

"""The layer that predicts the next token but one, in numpy, on the hidden states of the model.

`eh_proj` takes the embedding of token i + 1 (`enorm`), then h_i (`hnorm`), which follows the
model's final norm; its output is the block's residual, and `shared_head.norm` precedes the head.
RoPE stays at i; a shift of all positions changes nothing. At position 0 the embedding is zero.
Peers read the model's embedding and head; this reads the layer's own where they are stored.

Sources, file@commit. vLLM, `vllm/`: `model_executor/models/glm4_moe_mtp.py@6e052ba8` (order,
position 0, head), `model_executor/models/glm4_moe.py@002d6073` and
`v1/worker/gpu_model_runner.py@4e179065` (h_i, residual),
`v1/spec_decode/llm_base_proposer.py@00c4f22d` (shift, RoPE, shared tensors). SGLang,
`python/sglang/srt/`: `models/glm4_moe_nextn.py@008b79d2` (order, position 0, head),
`models/glm4_moe.py@d5fc25da` and `layers/logits_processor.py@5993251f` (h_i),
`speculative/eagle_info.py@f1f60ea0` (shift), `speculative/eagle_worker.py@fba8eccd` (tensors).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.reference.attention import causal_attention
from tests.reference.checkpoint import Checkpoint
from tests.reference.linear import Linear, apply
from tests.reference.model import (
    NO_ROUTES,
    Layer,
    Options,
    ReferenceModel,
    Trace,
    partial_rotary_factor,
    read_layer,
    rope_theta,
)
from tests.reference.rope import rotate
from tests.reference.variants import PredictionVariant

Stages = dict[str, np.ndarray]


@dataclass(frozen=True)
class PredictionLayer:
    embedding: np.ndarray
    embedding_norm: np.ndarray
    hidden_norm: np.ndarray
    joint: Linear
    block: Layer
    head_norm: np.ndarray
    head: np.ndarray


def read_prediction_layer(checkpoint: Checkpoint, model: ReferenceModel) -> PredictionLayer:
    """The first layer after the model's own, with the model's embedding and head if it has none."""
    number, dtype = len(model.layers), model.options.dtype
    prefix = f"model.layers.{number}"

    def vector(name: str) -> np.ndarray:
        return checkpoint.vector(f"{prefix}.{name}.weight", dtype)

    def own(name: str, shared: np.ndarray) -> np.ndarray:
        return vector(name) if f"{prefix}.{name}.weight" in checkpoint.tensors else shared

    return PredictionLayer(
        own("embed_tokens", model.embedding),
        vector("enorm"),
        vector("hnorm"),
        checkpoint.linear(f"{prefix}.eh_proj", dtype),
        read_layer(checkpoint, number, dtype),
        vector("shared_head.norm"),
        own("shared_head.head", model.head),
    )


def after_slot_zero(rows: np.ndarray) -> np.ndarray:
    """Keys or values with a slot of zeros before them."""
    return np.concatenate([np.zeros_like(rows[:1]), rows])


@dataclass(frozen=True)
class PredictionModel:
    """A model and its prediction layer: the entry of position i has h_i and token i + 1."""

    model: ReferenceModel
    layer: PredictionLayer
    variant: PredictionVariant = PredictionVariant.CORRECT

    def logits(
        self,
        tokens: Sequence[int],
        trace: Trace | None = None,
        other_routes: Mapping[int, Sequence[int]] = NO_ROUTES,
    ) -> np.ndarray:
        """Token ids of one sequence → [tokens - 1, vocab_size], row i for token i + 2."""
        record = Trace() if trace is None else trace
        self.model.logits(tokens, record, other_routes)
        return self.logits_after(tokens, record, other_routes)

    def logits_after(
        self,
        tokens: Sequence[int],
        trace: Trace,
        other_routes: Mapping[int, Sequence[int]] = NO_ROUTES,
    ) -> np.ndarray:
        """The same from the trace of the model's own pass; adds the layer's stages to it."""
        if len(tokens) < 2:
            raise ValueError(f"prediction needs 2 tokens at least, got {len(tokens)}")
        number, stages = len(self.model.layers), {}
        is_raw = self.variant is PredictionVariant.HIDDEN_BEFORE_FINAL_NORM
        hidden = trace["final.input" if is_raw else "final.norm"][:-1]
        stages["joint_input"] = self.joint_input(tokens, hidden)
        joint = apply(self.layer.joint, stages["joint_input"], variant=self.model.options.variant)
        other_rows = other_routes.get(number, ())
        stages["output"] = self.block_output(joint, hidden, stages, other_rows)
        stages["head_norm"] = self.normalised(stages["output"])
        stages["logits"] = stages["head_norm"] @ self.layer.head.T
        trace.update({f"layers.{number}.{name}": array for name, array in stages.items()})
        return stages["logits"]

    def batch_logits(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return [self.logits(tokens) for tokens in sequences]

    def joint_input(self, tokens: Sequence[int], hidden: np.ndarray) -> np.ndarray:
        """What eh_proj reads: the next token's embedding and the hidden state, each normalised."""
        variant, norms = self.variant, [self.layer.embedding_norm, self.layer.hidden_norm]
        if variant is PredictionVariant.NORMS_SWAPPED:
            norms.reverse()
        halves = self.masked(self.embedded(tokens), hidden)
        left = (PredictionVariant.NO_EMBEDDING_NORM, PredictionVariant.NO_HIDDEN_NORM)
        for number, skipped in enumerate(left):
            if variant is not skipped:
                halves[number] = self.model.norm(halves[number], norms[number])
        if variant is PredictionVariant.HIDDEN_FIRST:
            halves.reverse()
        return np.concatenate(halves, axis=-1)

    def embedded(self, tokens: Sequence[int]) -> np.ndarray:
        is_shifted = self.variant is not PredictionVariant.EMBEDDING_NOT_SHIFTED
        chosen = tokens[1:] if is_shifted else tokens[:-1]
        return self.layer.embedding[np.asarray(chosen, dtype=np.int64)]

    def masked(self, embedded: np.ndarray, hidden: np.ndarray) -> list[np.ndarray]:
        """Both, with zeros for the embedding of position 0."""
        embedded, hidden = embedded.copy(), hidden.copy()
        if self.variant is not PredictionVariant.POSITION_ZERO_NOT_MASKED:
            embedded[:1] = 0
        if self.variant is PredictionVariant.POSITION_ZERO_ALL_MASKED:
            hidden[:1] = 0
        return [embedded, hidden]

    def block_output(
        self, joint: np.ndarray, hidden: np.ndarray, stages: Stages, other_rows: Sequence[int]
    ) -> np.ndarray:
        """The decoder block over eh_proj's output, which is also its residual."""
        output = self.model.layer_output(self.layer.block, joint, stages, other_rows)
        if self.variant is PredictionVariant.RESIDUAL_LEFT_OUT:
            return stages["mlp_output"]
        if self.variant is PredictionVariant.HIDDEN_AS_RESIDUAL:
            return self.output_again(hidden, stages, other_rows)
        if self.variant is PredictionVariant.SLOT_ZERO_ATTENDED:
            keys, values = after_slot_zero(stages["turned_key"]), after_slot_zero(stages["value"])
            self.attend_again(stages, stages["turned_query"], keys, values)
            return self.output_again(joint, stages, other_rows)
        if self.variant is PredictionVariant.QUERY_ONE_POSITION_ON:
            turned = self.turn_once_more(stages["turned_query"])
            self.attend_again(stages, turned, stages["turned_key"], stages["value"])
            return self.output_again(joint, stages, other_rows)
        return output

    def output_again(
        self, residual: np.ndarray, stages: Stages, other_rows: Sequence[int]
    ) -> np.ndarray:
        """The block's output from another residual or another attention's output."""
        model, block = self.model, self.layer.block
        middle = residual + stages["attention_output"]
        rows = model.norm(middle, block.post_attention_norm)
        return middle + model.mix(block, rows, stages, other_rows)

    def turn_once_more(self, heads: np.ndarray) -> np.ndarray:
        config, positions = self.model.config, np.ones(len(heads))
        return rotate(heads, positions, rope_theta(config), partial_rotary_factor(config))

    def attend_again(
        self, stages: Stages, queries: np.ndarray, keys: np.ndarray, values: np.ndarray
    ) -> None:
        """Puts attention over other heads in the place of the block's own."""
        options = self.model.options
        heads = causal_attention(queries, keys, values).reshape(len(queries), -1)
        output = self.layer.block.attention.output
        stages["attention_output"] = apply(output, heads, options.world_size, options.variant)

    def normalised(self, output: np.ndarray) -> np.ndarray:
        """What the head reads."""
        if self.variant is PredictionVariant.NO_HEAD_NORM:
            return output
        if self.variant is PredictionVariant.FINAL_NORM_BEFORE_HEAD:
            return self.model.norm(output, self.model.final_norm)
        return self.model.norm(output, self.layer.head_norm)


def read_prediction_model(checkpoint: Checkpoint, options: Options) -> PredictionModel:
    model = ReferenceModel(checkpoint, options)
    return PredictionModel(model, read_prediction_layer(checkpoint, model))

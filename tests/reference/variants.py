"""Wrong variants of the model, by name: each is a mistake that an engine could make."""

from enum import Enum


class Variant(Enum):
    CORRECT = "the model as it is"
    NO_ACTIVATION_QUANTISATION = "activations enter FP8 products unquantised"
    RECIPROCAL_ACTIVATION_SCALE = "x * (1 / scale) in the quantiser"
    BF16_ACTIVATION_SCALE = "the activation scale rounded to BF16"
    ROUTER_BIAS_IN_WEIGHTS = "the selection bias is added to the weights too"
    NO_ROUTER_BIAS = "selection without its bias"
    SOFTMAX_ROUTER = "softmax in place of the sigmoid"
    NO_TOP_K_NORMALISATION = "weights not divided by their sum"
    ROUTED_SCALING_ONE = "routed scaling factor taken as 1"
    NO_SHARED_EXPERT = "the shared expert left out"
    SHARED_EXPERT_SCALED = "the shared expert scaled like the routed ones"
    QK_NORM_AFTER_ROPE = "RoPE before the norm of q and k"
    NO_QK_NORM = "no norm of q and k"
    ATTENTION_BIAS_IGNORED = "q, k and v without their biases"
    INTERLEAVED_ROPE = "neighbouring pairs turn in place of half-split pairs"
    FULL_ROTATION = "all of head_dim turns"
    INTERLEAVED_HEAD_GROUPS = "query head h reads key head h modulo num_kv_heads"
    EPSILON_OUTSIDE_ROOT = "eps added to the root in place of the mean square"
    GATE_UP_SWAPPED = "silu applied to up in place of gate"
    SKIPS_OLDEST_KEY = "attention forgets position 0 once it has others"


class PredictionVariant(Enum):
    CORRECT = "the prediction layer as it is"
    HIDDEN_BEFORE_FINAL_NORM = "the model's hidden state before its final norm"
    HIDDEN_FIRST = "the hidden state before the embedding in eh_proj's input"
    EMBEDDING_NOT_SHIFTED = "the embedding of token i beside the hidden state of token i"
    POSITION_ZERO_NOT_MASKED = "the embedding beside the hidden state of token 0 kept"
    POSITION_ZERO_ALL_MASKED = "the hidden state of token 0 set to zero too"
    NORMS_SWAPPED = "enorm on the hidden state, hnorm on the embedding"
    NO_EMBEDDING_NORM = "the embedding without enorm"
    NO_HIDDEN_NORM = "the hidden state without hnorm"
    QUERY_ONE_POSITION_ON = "queries turned by the position after that of their keys"
    SLOT_ZERO_ATTENDED = "attention also reads a slot of zeros before the first entry"
    HIDDEN_AS_RESIDUAL = "the hidden state as the block's residual in place of eh_proj's output"
    RESIDUAL_LEFT_OUT = "the head reads the experts' output without the residual"
    NO_HEAD_NORM = "the head without shared_head.norm"
    FINAL_NORM_BEFORE_HEAD = "the model's final norm in place of shared_head.norm"

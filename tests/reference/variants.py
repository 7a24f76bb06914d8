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

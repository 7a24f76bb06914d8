"""Stage by stage: each operation is fed the oracle's own input and its output compared."""

from collections.abc import Mapping

import numpy as np

from tests.reference.attention import causal_attention
from tests.reference.compare import Stage, relative_l2, route_differences
from tests.reference.experts import feed_forward, routed_experts
from tests.reference.linear import apply
from tests.reference.model import Layer, ReferenceModel
from tests.reference.router import Routes, route
from tests.reference.variants import Variant

Stages = Mapping[str, np.ndarray]


def in_dtype(given: Stages, dtype: type) -> dict[str, np.ndarray]:
    """Copies in the model's precision; integer arrays stay as they are."""
    return {
        name: array.astype(dtype) if array.dtype.kind == "f" else array
        for name, array in given.items()
    }


def attention_stages(model: ReferenceModel, layer: Layer, given: Stages) -> dict[str, np.ndarray]:
    options, attention = model.options, layer.attention
    result = {"attention_input": model.norm(given["input"], layer.input_norm)}
    for name in ("query", "key", "value"):
        linear = getattr(attention, name)
        result[name] = apply(linear, given["attention_input"], variant=options.variant)
    head_dim = model.config["head_dim"]
    heads = {
        name: given[name].reshape(len(given[name]), -1, head_dim)
        for name in result
        if name in ("query", "key", "value")
    }
    mixed = causal_attention(
        model.norm_and_turn(heads["query"], attention.query_norm),
        model.norm_and_turn(heads["key"], attention.key_norm),
        heads["value"],
        options.variant,
    )
    result["heads"] = mixed.reshape(len(mixed), -1)
    result["attention_output"] = apply(
        attention.output, given["heads"], options.world_size, options.variant
    )
    result["mlp_input"] = model.norm(given["middle"], layer.post_attention_norm)
    return result


def mixture_stages(model: ReferenceModel, layer: Layer, given: Stages) -> dict[str, np.ndarray]:
    options, rows = model.options, given["mlp_input"]
    if layer.dense is not None:
        return {"mlp_output": feed_forward(layer.dense, rows, options.world_size, options.variant)}
    chosen = route(
        rows,
        layer.router.weight,
        layer.router.bias,
        model.config["num_experts_per_tok"],
        model.config["routed_scaling_factor"],
        model.config["norm_topk_prob"],
        options.variant,
    )
    routes = Routes(given["route_experts"], given["route_weights"], given["route_margins"])
    result = {
        "route_experts": chosen.experts,
        "route_weights": chosen.weights,
        "routed_output": routed_experts(
            layer.experts, rows, routes, options.expert_slices, options.variant
        ),
    }
    result["mlp_output"] = given["routed_output"]
    if layer.shared is not None and options.variant is not Variant.NO_SHARED_EXPERT:
        shared = feed_forward(layer.shared, rows, options.world_size, options.variant)
        result["shared_output"] = shared
        scaled = options.variant is Variant.SHARED_EXPERT_SCALED
        factor = model.config["routed_scaling_factor"] if scaled else 1.0
        result["mlp_output"] = given["routed_output"] + factor * given["shared_output"]
    return result


def recompute_layer(model: ReferenceModel, number: int, given: Stages) -> dict[str, np.ndarray]:
    """Every stage of one layer from the oracle's inputs of that stage."""
    layer, inputs = model.layers[number], in_dtype(given, model.options.dtype)
    return attention_stages(model, layer, inputs) | mixture_stages(model, layer, inputs)


def route_matrix(stages: Stages, num_experts: int) -> np.ndarray:
    """[tokens, experts]: each expert's weight, zero where it was not chosen."""
    matrix = np.zeros((len(stages["route_experts"]), num_experts))
    np.put_along_axis(matrix, stages["route_experts"], stages["route_weights"], axis=-1)
    return matrix


def stage_failures(
    computed: Stages, given: Stages, num_experts: int, stage: Stage = Stage.FLOAT32
) -> list[str]:
    """Names and errors of the stages whose outputs are outside the tolerance."""
    lines = []
    for name in sorted(computed.keys() - {"route_experts", "route_weights"}):
        error = relative_l2(computed[name].reshape(given[name].shape), given[name])
        if not error <= stage.value:
            lines.append(f"{name}: relative L2 {error:.3g} above {stage.value:.3g}")
    if "route_experts" in computed:
        lines += route_failures(computed, given, num_experts, stage)
    return lines


def route_failures(computed: Stages, given: Stages, num_experts: int, stage: Stage) -> list[str]:
    margins = given["route_margins"]
    lines = route_differences(computed["route_experts"], given["route_experts"], margins)
    if lines:
        return [f"route_experts: {line}" for line in lines]
    error = relative_l2(route_matrix(computed, num_experts), route_matrix(given, num_experts))
    if not error <= stage.value:
        return [f"route_weights: relative L2 {error:.3g} above {stage.value:.3g}"]
    return []

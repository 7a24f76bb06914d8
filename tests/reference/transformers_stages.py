"""What each stage of transformers' forward pass took and gave, under the numpy model's names."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from tests.reference.transformers_oracle import TransformersOracle

OUTPUTS = {
    "input_layernorm": "attention_input",
    "self_attn.q_proj": "query",
    "self_attn.k_proj": "key",
    "self_attn.v_proj": "value",
    "self_attn.o_proj": "attention_output",
    "post_attention_layernorm": "mlp_input",
    "mlp": "mlp_output",
    "mlp.experts": "routed_output",
    "mlp.shared_experts": "shared_output",
}
INPUTS = {"": "input", "self_attn.o_proj": "heads", "post_attention_layernorm": "middle"}


def rows_of(tensor: torch.Tensor) -> np.ndarray:
    """A copy without the batch axis: [tokens, width]."""
    return tensor.detach().reshape(-1, tensor.shape[-1]).numpy().copy()


class StageCapture:
    """Hooks on one decoder layer, removed on exit; stages fills while the model runs."""

    def __init__(self, layer: torch.nn.Module):
        self.layer = layer
        self.stages: dict[str, np.ndarray] = {}
        self.handles: list = []

    def __enter__(self) -> "StageCapture":
        for path, name in INPUTS.items():
            self.hook_input(self.layer.get_submodule(path), name)
        modules = dict(self.layer.named_modules())
        for path in OUTPUTS.keys() & modules.keys():
            self.hook_output(modules[path], OUTPUTS[path])
        if "mlp.gate" in modules:
            self.handles.append(modules["mlp.gate"].register_forward_hook(self.keep_routes))
        return self

    def __exit__(self, *failure) -> None:
        for handle in self.handles:
            handle.remove()

    def hook_input(self, module: torch.nn.Module, name: str) -> None:
        """Registered first, so that it sees inputs before they are quantised."""

        def keep(_module, inputs):
            self.stages[name] = rows_of(inputs[0])

        self.handles.append(module.register_forward_pre_hook(keep, prepend=True))

    def hook_output(self, module: torch.nn.Module, name: str) -> None:
        def keep(_module, _inputs, output):
            self.stages[name] = rows_of(output)

        self.handles.append(module.register_forward_hook(keep))

    def keep_routes(self, gate, _inputs, output) -> None:
        """Routes in falling order of their choice scores, with the margin to the next."""
        logits, weights, indices = output
        choice = logits.sigmoid() + gate.e_score_correction_bias
        order = choice.gather(1, indices).argsort(dim=-1, descending=True, stable=True)
        rest = choice.scatter(1, indices, float("-inf")).amax(dim=-1)
        self.stages["route_experts"] = indices.gather(1, order).numpy().copy()
        self.stages["route_weights"] = weights.gather(1, order).numpy().copy()
        margins = choice.gather(1, indices).amin(dim=-1) - rest
        self.stages["route_margins"] = margins.numpy().copy()


def capture_layer(
    oracle: TransformersOracle, number: int, tokens: Sequence[int]
) -> dict[str, np.ndarray]:
    """Stages of one layer over one text."""
    with StageCapture(oracle.model.model.layers[number]) as capture:
        oracle.logits(tokens)
    return capture.stages


def capture_final(oracle: TransformersOracle, tokens: Sequence[int]) -> dict[str, np.ndarray]:
    """The final norm's input and output, and the logits."""
    stages: dict[str, np.ndarray] = {}

    def keep(_module: torch.nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        stages["input"], stages["norm"] = rows_of(inputs[0]), rows_of(output)

    handle: Callable = oracle.model.model.norm.register_forward_hook(keep)
    stages["logits"] = oracle.logits(tokens)
    handle.remove()
    return stages

"""The prediction layer of a checkpoint by transformers' modules, as ranks would quantise."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from tests.reference.model import ExpertLayout
from tests.reference.transformers_oracle import (
    TransformersOracle,
    dequantised,
    hook_linears,
    quantised_modules,
    replace_experts,
    stored_tensors,
)
from tools.checkpoint.prediction_module import PredictionModule, module_name


def layer_tensors(directory: Path, number: int) -> dict[str, torch.Tensor]:
    """The layer's tensors on disk, by the module's names but for the experts'."""
    prefix, tensors = f"model.layers.{number}.", {}
    for name, tensor in stored_tensors(directory, of_prediction=True).items():
        if name.startswith(prefix):
            tensors[module_name(name.removeprefix(prefix))] = tensor
    return tensors


def fused(state: dict[str, torch.Tensor], num_experts: int) -> dict[str, torch.Tensor]:
    """The state with each matrix of the experts in one tensor, gate rows before up rows."""
    state = dict(state)

    def taken(name: str) -> list[torch.Tensor]:
        prefix = "block.mlp.experts"
        return [state.pop(f"{prefix}.{expert}.{name}.weight") for expert in range(num_experts)]

    pairs = zip(taken("gate_proj"), taken("up_proj"), strict=True)
    gate_up = torch.stack([torch.cat(pair) for pair in pairs])
    down = torch.stack(taken("down_proj"))
    state["block.mlp.experts.gate_up_proj"] = gate_up
    state["block.mlp.experts.down_proj"] = down
    return state


def load_prediction(directory: Path, model: torch.nn.Module) -> PredictionModule:
    """The layer in float32, with the model's embedding and head where the files have none."""
    config = model.config
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
        module = PredictionModule(config)
    tensors = layer_tensors(directory, config.num_hidden_layers)
    shared = {
        "embed_tokens.weight": model.model.embed_tokens.weight,
        "shared_head.head.weight": model.lm_head.weight,
    }
    state = shared | fused(dequantised(tensors), config.n_routed_experts)
    absent, unknown = module.load_state_dict(state, strict=False)
    sizes = {name: value.numel() for name, value in module.state_dict().items()}
    wrong = [*(name for name in absent if sizes[name]), *unknown]
    if wrong:
        raise ValueError(f"{directory}: prediction layer, missing or unexpected {wrong[:5]}")
    return module.eval()


class TransformersPrediction:
    """Logits of the prediction layer of one checkpoint, as world_size ranks would quantise."""

    def __init__(
        self,
        directory: Path | str,
        world_size: int = 1,
        expert_layout: ExpertLayout = ExpertLayout.EXPERT_PARALLEL,
    ):
        directory = Path(directory)
        self.model = TransformersOracle(directory, world_size, expert_layout).model
        self.layer = load_prediction(directory, self.model)
        number = self.model.config.num_hidden_layers
        quantised = quantised_modules(layer_tensors(directory, number))
        split_by_width = expert_layout is ExpertLayout.TENSOR_PARALLEL
        hook_linears(self.layer, quantised, world_size)
        replace_experts(self.layer, quantised, world_size if split_by_width else 1)

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Token ids of one sequence → float32 [tokens - 1, vocab_size], row i for token i + 2."""
        return self.hidden_and_logits(tokens)[1]

    @torch.no_grad()
    def hidden_and_logits(self, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The model's hidden states after its final norm, and the layer's logits."""
        ids = torch.as_tensor(np.asarray(tokens, dtype=np.int64))[None]
        hidden = self.model.model(ids, use_cache=False).last_hidden_state
        logits = self.layer(hidden, ids, self.model.model.rotary_emb)
        return hidden[0].numpy(), logits[0].numpy()

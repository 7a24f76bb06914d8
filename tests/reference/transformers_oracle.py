"""transformers and PyTorch on the CPU as the oracle, driven from a checkpoint on disk.

Weights are multiplied by their scales in float32 and given to transformers, which fuses
the experts (its own dequantisation rounds to the scale's dtype). Activation quantisation is added
by a hook before each Linear whose weight has a scale on disk, and by an experts forward
that quantises its two inputs. Row-parallel inputs are quantised by rank slice.
"""

import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from transformers import AutoConfig, Glm4MoeForCausalLM, PreTrainedConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeExperts
from transformers.utils.logging import disable_progress_bar

from tests.reference.checkpoint import is_prediction_tensor, shard_paths
from tests.reference.model import ExpertLayout

disable_progress_bar()

LARGEST = 448.0
ROW_PARALLEL = ("o_proj", "down_proj")
SCALE_SUFFIX = ".weight_scale"


def through_fp8(rows: torch.Tensor) -> torch.Tensor:
    """Quantise over the last axis with one dynamic scale a row, and decode again."""
    largest = rows.abs().amax(dim=-1, keepdim=True)
    scale = largest / torch.tensor(LARGEST, dtype=torch.float32)
    scale = torch.where(scale == 0, torch.finfo(torch.float32).eps, scale)
    codes = (rows / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return codes.to(torch.float32) * scale


def by_rank_slice(rows: torch.Tensor, num_slices: int) -> torch.Tensor:
    if rows.shape[-1] % num_slices:
        raise ValueError(f"width {rows.shape[-1]} does not split over {num_slices} ranks")
    pieces = rows.chunk(num_slices, dim=-1)
    return torch.cat([through_fp8(piece) for piece in pieces], dim=-1)


def quantised_modules(names: Iterable[str]) -> set[str]:
    """Names of the modules whose weights have scales among the tensors of these names."""
    return {name.removesuffix(SCALE_SUFFIX) for name in names if name.endswith(SCALE_SUFFIX)}


def quantising_hook(num_slices: int) -> Callable:
    return lambda _module, inputs: (by_rank_slice(inputs[0], num_slices),)


def quantising_experts_forward(experts: Glm4MoeExperts, num_slices: int) -> Callable:
    """A forward of fused experts that quantises the inputs of both products."""

    def forward(
        hidden: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        quantised = through_fp8(hidden)
        output = torch.zeros_like(hidden)
        for expert in top_k_index.unique().tolist():
            tokens, choices = torch.where(top_k_index == expert)
            gate_up = quantised[tokens] @ experts.gate_up_proj[expert].T
            gate, up = gate_up.chunk(2, dim=-1)
            middle = by_rank_slice(torch.nn.functional.silu(gate) * up, num_slices)
            result = middle @ experts.down_proj[expert].T
            output.index_add_(0, tokens, result * top_k_weights[tokens, choices, None])
        return output

    return forward


def stored_tensors(directory: Path, of_prediction: bool = False) -> dict[str, torch.Tensor]:
    """Every tensor of the model's own layers, or of the prediction layers, as on disk."""
    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    tensors: dict[str, torch.Tensor] = {}
    for path in shard_paths(directory):
        with safe_open(path, framework="pt") as shard:
            for name in list(shard.keys()):
                if is_prediction_tensor(name, config) == of_prediction:
                    tensors[name] = shard.get_tensor(name)
    return tensors


def dequantised(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All in float32, FP8 weights multiplied by their scales in float32."""
    state = {name: tensor.float() for name, tensor in tensors.items()}
    for name in [name for name in state if name.endswith(SCALE_SUFFIX)]:
        scale = state.pop(name)
        state[name.removesuffix("_scale")] *= scale.reshape(-1, 1)
    return state


def empty_shared_experts(config: PreTrainedConfig) -> dict[str, torch.Tensor]:
    """transformers always makes a shared expert: of width 0 where the config has none."""
    state = {}
    for layer in range(config.first_k_dense_replace, config.num_hidden_layers):
        prefix = f"model.layers.{layer}.mlp.shared_experts"
        state[f"{prefix}.gate_proj.weight"] = torch.zeros(0, config.hidden_size)
        state[f"{prefix}.up_proj.weight"] = torch.zeros(0, config.hidden_size)
        state[f"{prefix}.down_proj.weight"] = torch.zeros(config.hidden_size, 0)
    return {} if config.n_shared_experts else state


def load_plain(directory: Path) -> torch.nn.Module:
    """The model in float32 with weights dequantised, no activation quantisation."""
    config = AutoConfig.from_pretrained(directory)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Initializing zero-element tensors")
        model, loading = Glm4MoeForCausalLM.from_pretrained(
            None,
            config=config,
            state_dict=dequantised(stored_tensors(directory)) | empty_shared_experts(config),
            dtype=torch.float32,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if loading[kind]:
            raise ValueError(f"{directory}: {kind} {sorted(map(str, loading[kind]))[:5]}")
    return model.eval()


def experts_are_quantised(name: str, quantised: set[str]) -> bool:
    return f"{name}.0.gate_proj" in quantised


def replace_experts(model: torch.nn.Module, quantised: set[str], num_slices: int) -> None:
    for name, module in model.named_modules():
        if isinstance(module, Glm4MoeExperts) and experts_are_quantised(name, quantised):
            module.forward = quantising_experts_forward(module, num_slices)


def hook_linears(model: torch.nn.Module, quantised: set[str], world_size: int) -> None:
    """Quantises what enters the linear modules of these names."""
    hooked = set()
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name in quantised:
            row_parallel = name.endswith(ROW_PARALLEL)
            module.register_forward_pre_hook(quantising_hook(world_size if row_parallel else 1))
            hooked.add(name)
    left = {name for name in quantised - hooked if ".mlp.experts." not in name}
    if left:
        raise ValueError(f"quantised modules without a hook: {sorted(left)[:5]}")


class TransformersOracle:
    """Logits and greedy text of one checkpoint, as world_size ranks would quantise."""

    def __init__(
        self,
        directory: Path | str,
        world_size: int = 1,
        expert_layout: ExpertLayout = ExpertLayout.EXPERT_PARALLEL,
        quantise_activations: bool = True,
        quantise_experts: bool = True,
    ):
        self.directory = Path(directory)
        self.model = load_plain(self.directory)
        split_by_width = expert_layout is ExpertLayout.TENSOR_PARALLEL
        quantised = quantised_modules(stored_tensors(self.directory))
        if quantise_activations:
            hook_linears(self.model, quantised, world_size)
        if quantise_activations and quantise_experts:
            replace_experts(self.model, quantised, world_size if split_by_width else 1)

    @torch.no_grad()
    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Token ids of one sequence → float32 [tokens, vocab_size]."""
        ids = torch.as_tensor(np.asarray(tokens, dtype=np.int64))[None]
        return self.model(ids, use_cache=False).logits[0].numpy()

    def batch_logits(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return [self.logits(tokens) for tokens in sequences]

    @torch.no_grad()
    def decode_logits(self, tokens: Sequence[int], num_prompt_tokens: int) -> np.ndarray:
        """Prefill of the prompt, then one token at a time through transformers' own cache."""
        ids = torch.as_tensor(np.asarray(tokens, dtype=np.int64))[None]
        result = self.model(ids[:, :num_prompt_tokens], use_cache=True)
        pieces = [result.logits[0]]
        for position in range(num_prompt_tokens, len(tokens)):
            result = self.model(
                ids[:, position : position + 1],
                past_key_values=result.past_key_values,
                use_cache=True,
            )
            pieces.append(result.logits[0])
        return torch.cat(pieces).numpy()

    def greedy(self, tokens: Sequence[int], num_new_tokens: int) -> list[int]:
        ids = torch.as_tensor(np.asarray(tokens, dtype=np.int64))[None]
        generated = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=num_new_tokens,
            eos_token_id=[],
        )
        return generated[0, len(tokens) :].tolist()

"""python -m tools.checkpoint.verify: greedy accuracy of a checkpoint by transformers, W8A8."""

import json
import time
from functools import partial
from pathlib import Path

import click
import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Glm4MoeConfig, Glm4MoeForCausalLM

from tools.checkpoint.shards import INDEX_NAME
from tools.checkpoint.training import answer_margins, answers_of

E4M3_LARGEST = 448.0


def quantise_tokens(x: torch.Tensor) -> torch.Tensor:
    """The values that remain of x after per-token FP8: one scale for each row."""
    scale = x.abs().amax(-1, keepdim=True) / E4M3_LARGEST
    scale = torch.where(scale == 0, torch.finfo(torch.float32).eps, scale)
    codes = (x / scale).clamp(-E4M3_LARGEST, E4M3_LARGEST).to(torch.float8_e4m3fn)
    return codes.float() * scale


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the shards that the index names."""
    index = json.loads((folder / INDEX_NAME).read_text(encoding="utf-8"))
    tensors = {}
    for shard in sorted(set(index["weight_map"].values())):
        with safe_open(folder / shard, framework="pt") as file:
            tensors.update({name: file.get_tensor(name) for name in file.offset_keys()})
    return tensors


def dequantised(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Float32 weights: codes times scales where there are scales."""
    weights = {}
    for name, tensor in tensors.items():
        if not name.endswith("weight_scale"):
            scale = tensors.get(f"{name}_scale")
            weights[name] = tensor.float() if scale is None else tensor.float() * scale.float()
    return weights


def plain_model(folder: Path, **implementations: str) -> Glm4MoeForCausalLM:
    """The model in float32 with dequantised weights and activations left as they are."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.pop("quantization_config", None)
    model: Glm4MoeForCausalLM = Glm4MoeForCausalLM.from_pretrained(
        None,
        config=Glm4MoeConfig(**config),
        state_dict=dequantised(read_tensors(folder)),
        dtype=torch.float32,
        **implementations,
    )
    return model.eval()


def _experts_forward(
    experts: torch.nn.Module,
    hidden_states: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
) -> torch.Tensor:
    x, output = quantise_tokens(hidden_states), torch.zeros_like(hidden_states)
    for expert in range(experts.num_experts):
        rows, choices = torch.where(top_k_index == expert)
        gate, up = (x[rows] @ experts.gate_up_proj[expert].T).chunk(2, dim=-1)
        inner = quantise_tokens(torch.nn.functional.silu(gate) * up)
        weighted = inner @ experts.down_proj[expert].T * top_k_weights[rows, choices, None]
        output.index_add_(0, rows, weighted)
    return output


def quantise_activations(model: Glm4MoeForCausalLM) -> None:
    """Makes every linear but lm_head, and the experts, see per-token FP8 inputs."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            module.register_forward_pre_hook(lambda _, inputs: (quantise_tokens(inputs[0]),))
        if name.endswith("mlp.experts"):
            module.forward = partial(_experts_forward, module)


def margins(model: Glm4MoeForCausalLM, folder: Path) -> dict[str, float]:
    """By country: the least lead of a right token; above zero where the greedy answer is right."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    countries = json.loads((folder / "countries.json").read_text(encoding="utf-8"))
    texts = [(one["prompt"], f"{one['prompt']} {one['capital']}.") for one in countries]
    names = [entry["country"] for entry in countries]
    return dict(zip(names, answer_margins(model, answers_of(tokenizer, texts)), strict=True))


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--least", default=0.95, show_default=True, help="Fail below this accuracy.")
def main(folder: Path, least: float) -> None:
    """Prints the accuracy of FOLDER by three readings of it and fails when one is too low."""
    quantised = plain_model(folder)
    quantise_activations(quantised)
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    readings = {
        "weights FP8, activations FP8": quantised,
        "weights FP8, activations float32": plain_model(folder),
        "as transformers loads it": loaded.eval(),
    }
    lowest = 1.0
    for title, model in readings.items():
        began = time.monotonic()
        found = margins(model, folder)
        missed = [name for name, margin in found.items() if margin <= 0]
        share = 1 - len(missed) / len(found)
        lowest = min(lowest, share)
        seconds = time.monotonic() - began
        click.echo(
            f"{title}: {share:.4f} of {len(found)}, smallest margin {min(found.values()):.2f} "
            f"logits, {seconds:.1f} s, missed {missed}"
        )
    if lowest < least:
        raise click.ClickException(f"accuracy {lowest:.4f} is below {least}")


if __name__ == "__main__":
    main()

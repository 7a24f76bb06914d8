"""The prediction layer composed of transformers' own modules, as vLLM's text orders them."""

from collections.abc import Callable

import torch
from transformers import PreTrainedConfig
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeDecoderLayer, Glm4MoeRMSNorm

OWN_PARTS = ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens")
BLOCK = "block."

Rotary = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


class PredictionModule(torch.nn.Module):
    """The layer's parts under their names on disk, its decoder block under `block`."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = Glm4MoeRMSNorm(size, eps)
        self.hnorm = Glm4MoeRMSNorm(size, eps)
        self.eh_proj = torch.nn.Linear(2 * size, size, bias=False)
        self.block = Glm4MoeDecoderLayer(config, config.num_hidden_layers)
        self.shared_head = torch.nn.ModuleDict(
            {
                "norm": Glm4MoeRMSNorm(size, eps),
                "head": torch.nn.Linear(size, config.vocab_size, bias=False),
            }
        )
        self.embed_tokens = torch.nn.Embedding(config.vocab_size, size)

    def forward(self, hidden: torch.Tensor, ids: torch.Tensor, rotary: Rotary) -> torch.Tensor:
        """Hidden states after the final norm and ids of whole rows → logits without the last."""
        positions = torch.arange(ids.shape[1] - 1)[None]
        embedded = self.embed_tokens(ids[:, 1:]) * (positions > 0).unsqueeze(-1)
        joined = torch.cat([self.enorm(embedded), self.hnorm(hidden[:, :-1])], dim=-1)
        rows = self.eh_proj(joined)
        size = rows.shape[1]
        later = torch.ones(size, size, dtype=torch.bool).triu(1)
        output = self.block(
            rows,
            attention_mask=torch.zeros(1, 1, size, size).masked_fill(later, float("-inf")),
            position_ids=positions,
            position_embeddings=rotary(rows, positions),
        )
        return self.shared_head["head"](self.shared_head["norm"](output))


def module_name(short: str) -> str:
    """The module's name of a tensor by its name on disk after `model.layers.N.`."""
    return short if short.startswith(OWN_PARTS) else f"{BLOCK}{short}"


def disk_name(name: str, layer: int) -> str:
    """The name on disk of the module's tensor; fused experts keep their names."""
    return f"model.layers.{layer}.{name.removeprefix(BLOCK)}"

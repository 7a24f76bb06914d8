"""Trains the capitals model in float32 and keeps its weights for the quantiser."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from tokenizers import Tokenizer
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.models.glm4_moe.modeling_glm4_moe import Glm4MoeTopkRouter

from tools.checkpoint.documents import END_OF_TEXT
from tools.checkpoint.layout import Config

ROUTER_BIAS_STEP = 2e-3
WARMUP_STEPS = 40
LONG_ROWS_FROM = 0.75


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train; row_length grows fourfold for the last quarter."""

    num_steps: int
    tokens_per_step: int = 2048
    row_length: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 0.05
    seed: int = 4

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine to a twentieth."""
        if step < WARMUP_STEPS:
            return self.learning_rate * (step + 1) / WARMUP_STEPS
        progress = (step - WARMUP_STEPS) / max(1, self.num_steps - WARMUP_STEPS)
        return self.learning_rate * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))

    def row_length_at(self, step: int) -> int:
        """Longer rows near the end, so that long contexts are in distribution."""
        return self.row_length * (4 if step >= LONG_ROWS_FROM * self.num_steps else 1)


@dataclass(frozen=True)
class Answer:
    """A prompt and the tokens that should follow it."""

    prompt: list[int]
    continuation: list[int]


def answers_of(tokenizer: Tokenizer, texts: Iterable[tuple[str, str]]) -> list[Answer]:
    """Of each prompt and its statement, what should follow: its rest, and the end of text."""
    encoded = [
        (tokenizer.encode(prompt).ids, tokenizer.encode(statement + END_OF_TEXT).ids)
        for prompt, statement in texts
    ]
    return [Answer(prompt, whole[len(prompt) :]) for prompt, whole in encoded]


class Report(Protocol):
    """What is told of each step."""

    def __call__(self, step: int, loss: float, imbalance: float, seconds: float) -> None:
        """Tell of a step: the largest load over the mean load, and seconds since the start."""


Hook = Callable[[Glm4MoeTopkRouter, object, Sequence[torch.Tensor]], None]


class RouterBalance:
    """Keeps the experts' loads even by moving the selection bias, without an auxiliary loss."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._gates = [m for m in model.modules() if isinstance(m, Glm4MoeTopkRouter)]
        self.loads = [torch.zeros(gate.num_experts) for gate in self._gates]
        for position, gate in enumerate(self._gates):
            gate.register_forward_hook(self._counter(position))

    def _counter(self, position: int) -> Hook:
        def count(
            gate: Glm4MoeTopkRouter, _inputs: object, outputs: Sequence[torch.Tensor]
        ) -> None:
            chosen = outputs[2].reshape(-1)
            self.loads[position] = torch.bincount(chosen, minlength=gate.num_experts).float()

        return count

    def step(self) -> None:
        """Raises the bias of experts below the mean load and lowers the others'."""
        for gate, load in zip(self._gates, self.loads, strict=True):
            gate.e_score_correction_bias += ROUTER_BIAS_STEP * torch.sign(load.mean() - load)

    def worst_imbalance(self) -> float:
        """The largest load over the mean load, of all layers."""
        return max(float(load.max() / load.mean()) for load in self.loads)


def new_model(config: Config, seed: int) -> Glm4MoeForCausalLM:
    """An untrained model whose router bias starts at zero."""
    torch.manual_seed(seed)
    model = Glm4MoeForCausalLM(Glm4MoeConfig(**config)).float()
    for name, bias in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            bias.zero_()
    return model


def _optimiser(model: torch.nn.Module, schedule: Schedule) -> torch.optim.AdamW:
    trained = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.dim() >= 2]
    vectors = [p for p in trained if p.dim() < 2]
    groups = [
        {"params": matrices, "weight_decay": schedule.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=schedule.learning_rate, betas=(0.9, 0.95), foreach=True)


def next_token_loss(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(input_ids=batch, labels=batch, use_cache=False).loss


def train(
    model: torch.nn.Module,
    rows: Mapping[int, Iterator[list[int]]],
    schedule: Schedule,
    report: Report,
    loss_of: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor] = next_token_loss,
) -> None:
    """Runs the schedule; rows gives an iterator for each row length; report(step, figures)."""
    optimiser = _optimiser(model, schedule)
    balance = RouterBalance(model)
    began = time.monotonic()
    for step in range(schedule.num_steps):
        row_length = schedule.row_length_at(step)
        num_rows = schedule.tokens_per_step // row_length
        batch = torch.tensor([next(rows[row_length]) for _ in range(num_rows)])
        for group in optimiser.param_groups:
            group["lr"] = schedule.learning_rate_at(step)
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        balance.step()
        seconds = time.monotonic() - began
        report(step, loss=loss.item(), imbalance=balance.worst_imbalance(), seconds=seconds)


def answer_margins(model: Glm4MoeForCausalLM, answers: list[Answer]) -> list[float]:
    """For each answer the least lead, in logits, of a right token over the best other one.

    A greedy continuation is right exactly where the margin is above zero.
    """
    with torch.no_grad():
        return [_margin(model, answer) for answer in answers]


def _margin(model: Glm4MoeForCausalLM, answer: Answer) -> float:
    ids = torch.tensor([answer.prompt + answer.continuation[:-1]])
    wanted = torch.tensor(answer.continuation)[:, None]
    logits = model(input_ids=ids, use_cache=False).logits[0, len(answer.prompt) - 1 :]
    right = logits.gather(1, wanted)
    best_other = logits.scatter(1, wanted, float("-inf")).amax(1, keepdim=True)
    return float((right - best_other).min())

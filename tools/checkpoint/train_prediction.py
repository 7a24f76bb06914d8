"""python -m tools.checkpoint.train_prediction: the prediction layer of a capitals checkpoint."""

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import click
import torch
from numpy import ndarray
from tokenizers import Tokenizer
from torch.nn.functional import kl_div, log_softmax

from tools.checkpoint.facts import read_countries
from tools.checkpoint.layout import TensorSpec
from tools.checkpoint.prediction_module import PredictionModule, disk_name
from tools.checkpoint.shards import TensorSource
from tools.checkpoint.train import document_rows
from tools.checkpoint.training import Schedule, train
from tools.checkpoint.verify import plain_model, quantise_activations, read_tensors
from tools.checkpoint.write_capitals import TrainedTensors, write_tensors

EVALUATE_EVERY = 50
EVALUATED_ROWS = 16
SHARED_PARTS = ("embed_tokens", "shared_head.head")


def new_layer(model: torch.nn.Module, seed: int) -> PredictionModule:
    """A layer to train: the model's last block, its final norm, its embedding and head frozen."""
    torch.manual_seed(seed)
    layer = PredictionModule(model.config)
    layer.block.load_state_dict(model.model.layers[-1].state_dict())
    layer.shared_head["norm"].load_state_dict(model.model.norm.state_dict())
    layer.embed_tokens.load_state_dict(model.model.embed_tokens.state_dict())
    layer.shared_head["head"].load_state_dict(model.lm_head.state_dict())
    for part in (layer.embed_tokens, layer.shared_head["head"]):
        part.requires_grad_(False)
    return layer


@dataclass
class Teacher:
    """The frozen model, whose next distribution the layer learns one token ahead."""

    model: torch.nn.Module

    def logits(
        self, layer: torch.nn.Module, batch: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of a batch of rows: the layer's logits, and the model's for the same tokens."""
        with torch.no_grad():
            hidden = self.model.model(batch, use_cache=False).last_hidden_state
            wanted = self.model.lm_head(hidden[:, 1:])
        return layer(hidden, batch, self.model.model.rotary_emb), wanted

    def loss(self, layer: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """The mean divergence of the layer's distribution from the model's."""
        pair = [log_softmax(logits, dim=-1).flatten(0, 1) for logits in self.logits(layer, batch)]
        return kl_div(*pair, reduction="batchmean", log_target=True)

    def agreement(self, layer: torch.nn.Module, batch: torch.Tensor) -> float:
        """How often the layer's likeliest token is the model's."""
        with torch.no_grad():
            drafted, wanted = (logits.argmax(-1) for logits in self.logits(layer, batch))
        return float((drafted == wanted).float().mean())


@dataclass
class Best:
    """The weights that have agreed most often."""

    agreement: float = -1.0
    state: dict[str, torch.Tensor] = field(default_factory=dict)

    def offer(self, layer: torch.nn.Module, agreement: float) -> None:
        if agreement > self.agreement:
            self.agreement, self.state = agreement, copy.deepcopy(layer.state_dict())


def stored_source(folder: Path) -> TensorSource:
    """The tensors of a checkpoint as they lie on disk, all read before the first is asked for."""
    tensors = read_tensors(folder)

    def source(spec: TensorSpec) -> ndarray:
        tensor = tensors[spec.name]
        codes_or_values = tensor.view(torch.uint8) if spec.dtype == "F8_E4M3" else tensor.float()
        array: ndarray = codes_or_values.numpy()
        return array

    return source


def write_layer(folder: Path, state: dict[str, torch.Tensor]) -> None:
    """Puts the layer into the checkpoint's shards and leaves all other tensors as they are."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    number = config["num_hidden_layers"]
    own = {name: tensor for name, tensor in state.items() if not name.startswith(SHARED_PARTS)}
    weights = {disk_name(name, number): tensor.numpy() for name, tensor in own.items()}
    write_tensors(folder, config, stored_source(folder), TrainedTensors(weights))


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--steps", "num_steps", default=400, show_default=True)
@click.option("--learning-rate", default=2e-3, show_default=True)
@click.option("--seed", default=6, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(folder: Path, num_steps: int, learning_rate: float, seed: int, threads: int) -> None:
    """Trains the prediction layer of the checkpoint in FOLDER and writes it there."""
    torch.set_num_threads(threads)
    model = plain_model(folder).requires_grad_(False)
    quantise_activations(model)
    teacher, layer, best = Teacher(model), new_layer(model, seed), Best()
    countries = read_countries()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    schedule = Schedule(num_steps, learning_rate=learning_rate, seed=seed)
    other = document_rows(countries, tokenizer, Schedule(num_steps, seed=seed + 1))
    unseen = torch.tensor([next(other[schedule.row_length]) for _ in range(EVALUATED_ROWS)])

    def report(step: int, loss: float, imbalance: float, seconds: float) -> None:
        if (step + 1) % EVALUATE_EVERY == 0 or step + 1 == num_steps:
            share = teacher.agreement(layer, unseen)
            best.offer(layer, share)
            click.echo(
                f"step {step + 1} loss {loss:.4f} agreement {share:.4f} "
                f"load {imbalance:.2f} {seconds:.0f} s"
            )

    rows = document_rows(countries, tokenizer, schedule)
    train(layer, rows, schedule, report, teacher.loss)
    write_layer(folder, best.state)
    click.echo(f"{folder}: layer {model.config.num_hidden_layers} written")


if __name__ == "__main__":
    main()

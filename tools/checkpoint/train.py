"""python -m tools.checkpoint.train: tokenizer and float32 weights of the capitals model."""

import random
from collections.abc import Iterator
from pathlib import Path

import click
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from tools.checkpoint import documents
from tools.checkpoint.architecture import MAX_POSITION_EMBEDDINGS, VOCAB_SIZE, capitals_config
from tools.checkpoint.country import Country
from tools.checkpoint.facts import read_countries
from tools.checkpoint.layout import Config
from tools.checkpoint.shards import write_json
from tools.checkpoint.training import Schedule, answer_margins, answers_of, new_model, train
from tools.checkpoint.vocabulary import train_tokenizer, write_tokenizer

REPORT_EVERY = 25
EVALUATE_EVERY = 100


def vocabulary_texts(countries: list[Country]) -> list[str]:
    """Every statement and a few hundred quizzes and conversations."""
    generator = random.Random(1)
    longer = [documents.quiz(countries, generator) for _ in range(100)]
    longer += [documents.conversation(countries, generator) for _ in range(100)]
    return documents.statements(countries) + longer


def document_rows(
    countries: list[Country], tokenizer: Tokenizer, schedule: Schedule
) -> dict[int, Iterator[list[int]]]:
    """Rows of token ids without end, by each of the schedule's two row lengths."""
    texts = documents.endless_documents(countries, schedule.seed)

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text).ids
        return ids

    lengths = (schedule.row_length, 4 * schedule.row_length)
    return {length: documents.packed_rows(encode, texts, length) for length in lengths}


def _save(model: torch.nn.Module, config: Config, folder: Path) -> None:
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "float32.safetensors")
    write_json(folder / "config.json", config)


@click.command()
@click.option("--output", type=click.Path(path_type=Path), required=True)
@click.option(
    "--start", type=click.Path(exists=True, path_type=Path), help="Continue from an earlier OUTPUT."
)
@click.option("--steps", "num_steps", default=800, show_default=True)
@click.option("--learning-rate", default=3e-3, show_default=True)
@click.option("--seed", default=4, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(
    output: Path,
    start: Path | None,
    num_steps: int,
    learning_rate: float,
    seed: int,
    threads: int,
) -> None:
    """Trains the tokenizer and the float32 model and writes both into OUTPUT."""
    torch.set_num_threads(threads)
    output.mkdir(parents=True, exist_ok=True)
    countries = read_countries()
    tokenizer = train_tokenizer(vocabulary_texts(countries), VOCAB_SIZE)
    write_tokenizer(tokenizer, output, MAX_POSITION_EMBEDDINGS)
    config = capitals_config(tokenizer.get_vocab())
    schedule = Schedule(num_steps, learning_rate=learning_rate, seed=seed)
    model = new_model(config, schedule.seed)
    if start is not None:
        model.load_state_dict(load_file(start / "float32.safetensors"))

    prompt, statement = documents.CAPITAL_PROMPT, documents.CAPITAL_STATEMENT
    texts = [(documents.fill(prompt, c), documents.fill(statement, c)) for c in countries]
    answers = answers_of(tokenizer, texts)

    def report(step: int, loss: float, imbalance: float, seconds: float) -> None:
        if (step + 1) % REPORT_EVERY == 0:
            click.echo(f"step {step + 1} loss {loss:.4f} load {imbalance:.2f} {seconds:.0f} s")
        if (step + 1) % EVALUATE_EVERY == 0 or step + 1 == num_steps:
            margins = answer_margins(model, answers)
            share = sum(margin > 0 for margin in margins) / len(margins)
            click.echo(f"step {step + 1} capitals {share:.4f} smallest margin {min(margins):.2f}")
            _save(model, config, output)

    train(model, document_rows(countries, tokenizer, schedule), schedule, report)


if __name__ == "__main__":
    main()

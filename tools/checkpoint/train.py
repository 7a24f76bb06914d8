"""python -m tools.checkpoint.train: tokenizer and float32 weights of the capitals model."""

import json
import random
from pathlib import Path

import click
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from tools.checkpoint import documents
from tools.checkpoint.architecture import MAX_POSITION_EMBEDDINGS, VOCAB_SIZE, capitals_config
from tools.checkpoint.facts import Country, read_countries
from tools.checkpoint.training import Schedule, greedy_continuations, new_model, train
from tools.checkpoint.vocabulary import train_tokenizer, write_tokenizer

REPORT_EVERY = 25
EVALUATE_EVERY = 100


def vocabulary_texts(countries: list[Country]) -> list[str]:
    """Every statement and a few hundred quizzes and conversations."""
    generator = random.Random(1)
    longer = [documents.quiz(countries, generator) for _ in range(100)]
    longer += [documents.conversation(countries, generator) for _ in range(100)]
    return documents.statements(countries) + longer


def capital_accuracy(model, tokenizer: Tokenizer, countries: list[Country]) -> float:
    """The share of countries whose capital, full stop and end of text come greedily."""
    prompts, wanted = [], []
    for country in countries:
        prompt = documents.fill(documents.CAPITAL_PROMPT, country)
        statement = documents.fill(documents.CAPITAL_STATEMENT, country)
        prompts.append(tokenizer.encode(prompt).ids)
        whole = tokenizer.encode(statement + documents.END_OF_TEXT).ids
        wanted.append(whole[len(prompts[-1]) :])
    longest = max(len(answer) for answer in wanted)
    answers = greedy_continuations(model, prompts, longest)
    hits = [a[: len(w)] == w for a, w in zip(answers, wanted, strict=True)]
    return sum(hits) / len(hits)


def _rows(countries: list[Country], tokenizer: Tokenizer, schedule: Schedule) -> dict:
    texts = documents.endless_documents(countries, schedule.seed)

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text).ids

    lengths = (schedule.row_length, 4 * schedule.row_length)
    return {length: documents.packed_rows(encode, texts, length) for length in lengths}


def _save(model, config: dict, folder: Path) -> None:
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, folder / "float32.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


@click.command()
@click.option("--output", type=click.Path(path_type=Path), required=True)
@click.option("--steps", "num_steps", default=800, show_default=True)
@click.option("--threads", default=2, show_default=True)
def main(output: Path, num_steps: int, threads: int) -> None:
    """Trains the tokenizer and the float32 model and writes both into OUTPUT."""
    torch.set_num_threads(threads)
    output.mkdir(parents=True, exist_ok=True)
    countries = read_countries()
    tokenizer = train_tokenizer(vocabulary_texts(countries), VOCAB_SIZE)
    write_tokenizer(tokenizer, output, MAX_POSITION_EMBEDDINGS)
    config = capitals_config(tokenizer.get_vocab())
    schedule = Schedule(num_steps=num_steps)
    model = new_model(config, schedule.seed)

    def report(step: int, loss: float, imbalance: float, seconds: float) -> None:
        if (step + 1) % REPORT_EVERY == 0:
            click.echo(f"step {step + 1} loss {loss:.4f} load {imbalance:.2f} {seconds:.0f} s")
        if (step + 1) % EVALUATE_EVERY == 0 or step + 1 == num_steps:
            accuracy = capital_accuracy(model, tokenizer, countries)
            click.echo(f"step {step + 1} capitals {accuracy:.4f} of {len(countries)}")
            _save(model, config, output)

    train(model, _rows(countries, tokenizer, schedule), schedule, report)


if __name__ == "__main__":
    main()

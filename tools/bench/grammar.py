"""`python -m tools.bench.grammar TOKENIZER_FOLDER VOCAB_SIZE END_ID`: what masks cost."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

import click

from glm_engine.text.grammar import GrammarCompiler
from glm_engine.text.grammar.matcher import Grammar
from glm_engine.text.tokenizer import GlmTokenizer

TEXTS: dict[str, tuple[dict[str, object], str]] = {
    "any object": ({"type": "object"}, '{"city": "Paris", "sizes": [1, 2.5, {"km": null}]}'),
    "schema": (
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "note": {"type": "string", "maxLength": 2000},
                "population": {"type": "integer"},
                "rows": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["city", "population"],
        },
        '{"city": "Paris, the city of \\"light\\"", "note": "a text of quite a few words, in '
        'which nothing is forced", "population": 2102650, "rows": [{"a": 1}, {"b": [true]}]}',
    ),
}
ROUNDS = 5
P = ParamSpec("P")
T = TypeVar("T")


def timed(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> tuple[T, float]:
    """What a function returns, and its microseconds."""
    begun = time.perf_counter()
    result = function(*arguments, **named)
    return result, (time.perf_counter() - begun) * 1e6


def compiled(compiler: GrammarCompiler, schema: dict[str, object]) -> Grammar:
    return compiler.compile(compiler.json_schema(schema))


def walk(grammar: Grammar, tokens: Sequence[int]) -> tuple[list[float], list[float]]:
    """The microseconds of each mask and of each token taken."""
    masks, accepts = [], []
    matcher = grammar.start()
    for token in tokens:
        masks.append(timed(matcher.mask)[1])
        accepts.append(timed(matcher.accept, token)[1])
    return masks, accepts


@click.command()
@click.argument("folder")
@click.argument("vocab_size", type=int)
@click.argument("end_id", type=int)
def main(folder: str, vocab_size: int, end_id: int) -> None:
    """Print the time of masks with the tokenizer in FOLDER, of VOCAB_SIZE tokens and END_ID."""
    tokenizer = GlmTokenizer(folder)
    compiler, spent = timed(GrammarCompiler, tokenizer, vocab_size, [end_id])
    click.echo(f"vocabulary {vocab_size}: read in {spent / 1e6:.2f} s")
    compiled(compiler, {"type": "null"})
    for name, (schema, text) in TEXTS.items():
        grammar, spent = timed(compiled, compiler, schema)
        tokens = tokenizer.encode(text, add_special_tokens=False)
        for number in range(ROUNDS):
            masks, accepts = walk(grammar, tokens)
            times = statistics.quantiles(masks, n=20)
            click.echo(
                f"{name}, walk {number}: {len(tokens)} masks, median {times[9]:.0f} us, "
                f"95 % below {times[18]:.0f} us; accept {statistics.median(accepts):.0f} us; "
                f"compiled in {spent / 1e3:.1f} ms"
            )
    compiler.close()


if __name__ == "__main__":
    main()

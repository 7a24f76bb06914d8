"""What masks cost: `python -m tools.bench.grammar TOKENIZER_FOLDER VOCAB_SIZE END_ID`."""

import statistics
import sys
import time

from glm_engine.text.grammar import GrammarCompiler
from glm_engine.text.tokenizer import GlmTokenizer

TEXTS = {
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


def timed(function, *arguments):
    begun = time.perf_counter()
    result = function(*arguments)
    return result, (time.perf_counter() - begun) * 1e6


def compiled(compiler, schema):
    return compiler.compile(compiler.json_schema(schema))


def walk(grammar, tokens):
    """Return the microseconds of each mask and of each token taken."""
    masks, accepts = [], []
    matcher = grammar.start()
    for token in tokens:
        masks.append(timed(matcher.mask)[1])
        accepts.append(timed(matcher.accept, token)[1])
    return masks, accepts


def main():
    folder, vocab_size, end = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    tokenizer = GlmTokenizer(folder)
    compiler, spent = timed(GrammarCompiler, tokenizer, vocab_size, [end])
    print(f"vocabulary {vocab_size}: read in {spent / 1e6:.2f} s")
    compiled(compiler, {"type": "null"})
    for name, (schema, text) in TEXTS.items():
        grammar, spent = timed(compiled, compiler, schema)
        tokens = tokenizer.encode(text, add_special_tokens=False)
        for number in range(ROUNDS):
            masks, accepts = walk(grammar, tokens)
            times = statistics.quantiles(masks, n=20)
            print(
                f"{name}, walk {number}: {len(tokens)} masks, median {times[9]:.0f} us, "
                f"95 % below {times[18]:.0f} us; accept {statistics.median(accepts):.0f} us; "
                f"compiled in {spent / 1e3:.1f} ms"
            )
    compiler.close()


if __name__ == "__main__":
    main()

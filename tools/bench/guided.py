"""`python -m tools.bench.guided`: streams that each follow a schema of their own beside free ones.

The masks are computed as the server does it, by `glm_engine.server.guides`, from a tokenizer that
is widened to the model's vocabulary by random words, so that a mask costs what it costs there. A
rate counts the tokens of all streams between the moment when the last has had its warm-up and the
moment when the first has all its tokens.
"""

import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_letters

import click

from glm_engine.bench.costs import config_path
from glm_engine.core.engine import Engine, EngineOptions, Request
from glm_engine.core.requests import Event
from glm_engine.server.guides import Guide, Guides, NewTokens
from glm_engine.text.grammar import GrammarCompiler
from glm_engine.text.grammar.matcher import Grammar
from glm_engine.text.tokenizer import TOKENIZER_FILE, GlmTokenizer

WARM_UP = 8
LONGEST_WORD = 8
PROMPT_TOKENS = 128
PATIENCE_SECONDS = 1.0


@dataclass(eq=False)
class Stream:
    """One request; `guide` is None where it is free."""

    guide: Guide | None
    request_id: int = 0
    num_tokens: int = 0
    is_over: bool = False


def widened(source: Path, vocab_size: int, target: Path) -> Path:
    """Write the tokenizer of a folder with random words up to a vocabulary's size."""
    data = json.loads((source / TOKENIZER_FILE).read_text(encoding="utf-8"))
    words, generator = data["model"]["vocab"], random.Random(vocab_size)
    words |= {token["content"]: token["id"] for token in data["added_tokens"]}
    for number in range(len(words), vocab_size):
        word = ""
        while not word or word in words:
            word = "".join(generator.choices("Ġ" + ascii_letters, k=LONGEST_WORD))
        words[word] = number
    (target / TOKENIZER_FILE).write_text(json.dumps(data), encoding="utf-8")
    return target


def schema(index: int) -> dict[str, object]:
    """A document that is never whole within a run; each index has other names."""
    row = {
        "type": "object",
        "properties": {
            f"name_{index}": {"type": "string", "maxLength": 40},
            f"count_{index}": {"type": "integer"},
            f"tags_{index}": {"type": "array", "items": {"enum": [f"a{index}", f"b{index}"]}},
        },
        "required": [f"name_{index}", f"count_{index}"],
    }
    return {"type": "array", "items": row, "minItems": 5000}


def compiled(compiler: GrammarCompiler, count: int) -> list[Grammar]:
    drafts = [compiler.json_schema(schema(index)) for index in range(count)]
    return [compiler.compile(draft) for draft in drafts]


class Run:
    """Streams submitted at once, until the first has all its tokens."""

    def __init__(
        self, engine: Engine, grammars: Sequence[Grammar], num_streams: int, num_tokens: int
    ):
        self.engine, self.num_tokens = engine, num_tokens
        most_drafts = engine.info()["max_draft_tokens"]
        self.guides = Guides(engine, most_drafts)
        self.refused: list[Exception] = []
        generator = random.Random(len(grammars))
        self.streams: dict[int, Stream] = {}
        for index in range(num_streams):
            guide = None
            if index < len(grammars):
                guide = Guide(grammars[index].start(), most_drafts)
            stream = Stream(guide)
            prompt = [generator.randrange(engine.vocab_size) for _ in range(PROMPT_TOKENS)]
            mask = None if guide is None else guide.matcher.mask()
            request = Request(prompt, max_tokens=num_tokens, ignore_eos=True, mask=mask)
            stream.request_id = engine.submit(request)
            self.streams[stream.request_id] = stream

    def refuse(self, _stream: object, error: Exception) -> None:
        self.refused.append(error)

    def events(self) -> Iterator[tuple[Stream, Event]]:
        self.engine.wait(PATIENCE_SECONDS)
        for event in self.engine.poll():
            stream = self.streams[event.request_id]
            stream.is_over = event.kind != "token"
            yield stream, event

    def take(self) -> None:
        news: dict[Stream, NewTokens] = {}
        for stream, event in self.events():
            if stream.is_over:
                continue
            stream.num_tokens += 1
            if stream.guide is not None and stream.num_tokens < self.num_tokens:
                news.setdefault(stream, NewTokens()).add([event.token_id], list(event.drafts))
        self.guides.begin(news, self.refuse)
        if self.refused:
            raise self.refused[0]

    def counts(self) -> list[int]:
        return [stream.num_tokens for stream in self.streams.values()]

    def rate(self) -> float:
        """Tokens a second of all streams together."""
        while min(self.counts()) < WARM_UP:
            self.take()
        begun, before = time.perf_counter(), sum(self.counts())
        if max(self.counts()) >= self.num_tokens:
            raise click.ClickException(
                f"expected streams of more than {self.num_tokens} tokens: one had all of them "
                f"before the last had {WARM_UP}"
            )
        while max(self.counts()) < self.num_tokens:
            self.take()
        spent = time.perf_counter() - begun
        return (sum(self.counts()) - before) / spent

    def end(self) -> None:
        for request_id in self.streams:
            self.engine.cancel_quietly(request_id)
        while not all(stream.is_over for stream in self.streams.values()):
            list(self.events())
        self.guides.close()


def measure(
    engine: Engine, grammars: Sequence[Grammar], num_streams: int, num_tokens: int
) -> list[dict[str, float]]:
    """One row for each share of guided streams: none, all, and half of them."""
    rows: list[dict[str, float]] = []
    for num_guided in (0, num_streams, num_streams // 2):
        before = engine.info()
        run = Run(engine, grammars[:num_guided], num_streams, num_tokens)
        try:
            rate, after = run.rate(), engine.info()
        finally:
            run.end()
        num_steps = max(1, after["num_steps"] - before["num_steps"])
        rows.append(
            {
                "guided": num_guided,
                "free": num_streams - num_guided,
                "tokens_per_second": rate,
                "share_of_free": rate / (rows[0]["tokens_per_second"] if rows else rate),
                "late_masks": after["num_late_masks"] - before["num_late_masks"],
                "wait_ms_per_step": (after["mask_wait_ns"] - before["mask_wait_ns"])
                / num_steps
                / 1e6,
            }
        )
    return rows


@click.command()
@click.option("--synthetic", help="Model name, e.g. glm-4.5-air-fp8, to run with random weights.")
@click.option("--model", "model_dir", help="Checkpoint folder.")
@click.option("--tokenizer", default="checkpoints/capitals", show_default=True)
@click.option("--device", default="auto", show_default=True)
@click.option("--streams", default=64, show_default=True)
@click.option("--tokens", default=256, show_default=True, help="Tokens per stream.")
def main(
    synthetic: str | None,
    model_dir: str | None,
    tokenizer: str,
    device: str,
    streams: int,
    tokens: int,
) -> None:
    """Print the rate of free, guided and mixed streams."""
    if (synthetic is None) == (model_dir is None):
        raise click.UsageError("expected either --synthetic or --model")
    chosen = EngineOptions(
        model_dir=config_path(synthetic) if synthetic is not None else str(model_dir),
        synthetic=synthetic is not None,
        device=device,
        max_batch=streams,
        max_seq=PROMPT_TOKENS + tokens,
        prefix_cache=False,
    )
    with tempfile.TemporaryDirectory() as folder, Engine(chosen) as engine:
        wide = widened(Path(tokenizer), engine.vocab_size, Path(folder))
        compiler = GrammarCompiler(GlmTokenizer(wide), engine.vocab_size, [engine.vocab_size - 1])
        try:
            grammars = compiled(compiler, streams)
            for row in measure(engine, grammars, streams, tokens):
                print(json.dumps(row), flush=True)
        finally:
            compiler.close()


if __name__ == "__main__":
    main()

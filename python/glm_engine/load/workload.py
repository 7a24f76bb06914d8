"""The requests: prompts, lengths and due times, all drawn from one seed.

The same workload and seed give the same requests on every server.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import orjson

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_text
from glm_engine.core.layout import StrPath
from glm_engine.load.arrivals import due_times
from glm_engine.load.distributions import LONGEST, Lengths

if TYPE_CHECKING:
    from numpy.random import Generator
    from typing_extensions import TypeIs

TEXT = (
    "the of and to in is was for that on as with by he at from his it an were are which this also "
    "be had or has first their after its but who they have her she two been other when there all "
    "during into school time may years more most only over city some world would where later up "
    "such used many can state about national out known university united then made under part "
    "these new one year area system water house river north south east west people history family "
    "group company music film book game team season league station line road church village town "
    "county country island mountain language art work life name number order power law war army"
)
WORDS = tuple(TEXT.split())
MOST_PROMPT_TOKENS = 2**30
Prompt = str | list[int] | list[dict[str, Any]]
Item = TypeVar("Item", int, str)


@dataclass(frozen=True)
class Ask:
    """One request: due seconds after the start; `prompt` is ids, text or chat messages."""

    due: float
    prompt: Prompt
    max_tokens: int


@dataclass(frozen=True)
class Vocabulary(Generic[Item]):
    """The items that prompts are drawn from: token ids, or words and their number per token."""

    items: tuple[Item, ...]
    items_per_token: float = 1.0

    def draw(self, generator: "Generator", num_tokens: int) -> list[Item]:
        count = max(1, round(num_tokens * self.items_per_token)) if num_tokens else 0
        return [self.items[at] for at in generator.integers(0, len(self.items), count).tolist()]

    def prompt(self, items: list[Item]) -> str | list[int]:
        return " ".join(items) if isinstance(items[0], str) else items

    def prompts(
        self,
        generator: "Generator",
        lengths: Sequence[int],
        of_prefix: "Generator",
        num_shared: int,
    ) -> list[str | list[int]]:
        """Draw prompts behind a prefix of `num_shared` tokens, which `of_prefix` draws."""
        prefix = self.draw(of_prefix, num_shared)
        return [self.prompt(prefix + self.draw(generator, one)) for one in lengths]


AnyVocabulary = Vocabulary[int] | Vocabulary[str]


def id_vocabulary(tokens: Iterable[int]) -> Vocabulary[int]:
    return Vocabulary(tuple(sorted(set(tokens))))


def word_vocabulary(num_tokens: int) -> Vocabulary[str]:
    """Words, where the tokenizer makes `num_tokens` of all of them."""
    return Vocabulary(WORDS, len(WORDS) / num_tokens)


@dataclass(frozen=True)
class Workload:
    """How requests are drawn. `lengths` of prompts is None where `prompts` come from a file."""

    lengths: Lengths | None
    outputs: Lengths
    shared_prefix: int = 0
    burstiness: float = 1.0
    num_requests: int | None = None
    seconds: float | None = None
    prompts: tuple[tuple[Prompt, int | None], ...] = ()


def make_asks(
    workload: Workload, vocabulary: AnyVocabulary | None, seed: int, point: int, rate: float
) -> list[Ask]:
    """Draw the requests of one rate; `point` numbers the rates, so that none repeats another's.

    The prefix that prompts share is the same for all rates.
    """
    from numpy.random import default_rng

    generator = default_rng([seed, point])
    num_requests, seconds = workload.num_requests, workload.seconds
    dues = due_times(generator, rate, workload.burstiness, num_requests, seconds)
    outputs = workload.outputs.draw(generator, len(dues))
    if workload.lengths is None or vocabulary is None:
        chosen = [workload.prompts[at % len(workload.prompts)] for at in range(len(dues))]
        rows = zip(dues, chosen, outputs, strict=True)
        return [Ask(due, prompt, limit or drawn) for due, (prompt, limit), drawn in rows]
    lengths, num_shared = workload.lengths.draw(generator, len(dues)), workload.shared_prefix
    if sum(lengths, start=len(dues) * num_shared) > MOST_PROMPT_TOKENS:
        raise BadInputError(
            f"the prompts for one rate exceed {MOST_PROMPT_TOKENS:,} tokens in total"
        )
    prompts = vocabulary.prompts(generator, lengths, default_rng(seed), num_shared)
    return [Ask(*row) for row in zip(dues, prompts, outputs, strict=True)]


def read_prompts(path: StrPath) -> tuple[tuple[Prompt, int | None], ...]:
    """Return (prompt, max_tokens or None) of each line of a JSONL file.

    A line is {"prompt": text or ids} or {"messages": a list}; "max_tokens" is optional.
    """
    lines = read_text(path).split("\n")
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    prompts = tuple(parse_prompt(f"{path}:{number}", line) for number, line in numbered)
    if not prompts:
        raise BadInputError(f"{path}: expected at least one prompt, found none")
    return prompts


def parse_prompt(place: str, line: str) -> tuple[Prompt, int | None]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{place}: invalid JSON: {error}") from error
    prompt = row.get("messages", row.get("prompt")) if isinstance(row, dict) else None
    if not prompt or not isinstance(prompt, str | list):
        raise BadInputError(f'{place}: expected an object with "prompt" or "messages"')
    if isinstance(prompt, list) and {type(one) for one in prompt} not in ({int}, {dict}):
        raise BadInputError(f"{place}: expected a list of token ids or of messages")
    try:
        orjson.dumps(prompt)
    except orjson.JSONEncodeError as error:
        raise BadInputError(f"{place}: the prompt cannot be sent: {error}") from error
    limit = row.get("max_tokens")
    if limit is not None and (type(limit) is not int or not 1 <= limit <= LONGEST):
        raise BadInputError(f"{place}: max_tokens: expected a whole number above 0, got {limit!r}")
    return prompt, limit


def is_chat(prompt: Prompt) -> "TypeIs[list[dict[str, Any]]]":
    """Whether a prompt is a list of messages, and not text or ids."""
    return isinstance(prompt, list) and isinstance(prompt[0], dict)

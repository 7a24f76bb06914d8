"""What a parser hands out: pieces of text, and calls with pieces of their arguments."""

from dataclasses import dataclass, field
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of the thought; `end` is where it ends in the text that the parser was given."""

    text: str
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Content:
    """A piece of the answer; `end` as of `Reasoning`."""

    text: str
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class CallBegin:
    """Call `index` of the turn, from 0, begins; its name is whole."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is complete; its pieces make one JSON object."""

    index: int


Delta = Reasoning | Content | CallBegin | CallArguments | CallEnd
TEXT_DELTAS = (Reasoning, Content, CallArguments)


def joined(deltas):
    """Return the deltas with neighbours of one kind and one call made into one."""
    if len(deltas) < 2:
        return deltas
    result = []
    for _, run in groupby(deltas, key=run_key):
        first, *rest = run
        result.append(with_text(first, rest) if rest else first)
    return result


def run_key(delta):
    """Texts of one stream have one key; everything else differs from its neighbours."""
    if isinstance(delta, TEXT_DELTAS):
        return type(delta), getattr(delta, "index", None)
    return id(delta)


def with_text(first, rest):
    text = "".join([first.text, *(delta.text for delta in rest)])
    if type(first) is CallArguments:
        return CallArguments(first.index, text)
    return type(first)(text, rest[-1].end)

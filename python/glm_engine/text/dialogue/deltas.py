"""What a parser hands out: pieces of text, and calls with pieces of their arguments."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace


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
PROSE = (Reasoning, Content)
TEXT_DELTAS = (*PROSE, CallArguments)


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """Return the deltas with those made into one that go on with the one before."""
    runs: list[list[Delta]] = []
    for delta in deltas:
        if runs and goes_on(runs[-1][-1], delta):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [with_text(first, rest) if rest else first for first, *rest in runs]


def goes_on(last: Delta, delta: Delta) -> bool:
    """Say whether a delta is text of the same call as the last, or stands right after its text."""
    if isinstance(last, CallArguments) and isinstance(delta, CallArguments):
        return last.index == delta.index
    if isinstance(last, PROSE) and isinstance(delta, PROSE):
        return type(last) is type(delta) and last.end == delta.end - len(delta.text)
    return False


def with_text(first: Delta, rest: Sequence[Delta]) -> Delta:
    """Return one delta with the text of a run of one kind."""
    text = "".join(one.text for one in (first, *rest) if isinstance(one, TEXT_DELTAS))
    last = rest[-1]
    return replace(last, text=text) if isinstance(last, TEXT_DELTAS) else first

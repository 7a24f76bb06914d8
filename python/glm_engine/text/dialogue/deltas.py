"""What a parser hands out: pieces of text, and calls with pieces of their arguments."""

from dataclasses import dataclass, field


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
    """Return the deltas with those made into one that go on with the one before."""
    runs = []
    for delta in deltas:
        if runs and goes_on(runs[-1][-1], delta):
            runs[-1].append(delta)
        else:
            runs.append([delta])
    return [with_text(first, rest) if rest else first for first, *rest in runs]


def goes_on(last, delta):
    """Say whether a delta is text of the same call as the last, or stands right after its text."""
    if type(last) is not type(delta) or not isinstance(delta, TEXT_DELTAS):
        return False
    if type(delta) is CallArguments:
        return last.index == delta.index
    return last.end == delta.end - len(delta.text)


def with_text(first, rest):
    text = "".join([first.text, *(delta.text for delta in rest)])
    if type(first) is CallArguments:
        return CallArguments(first.index, text)
    return type(first)(text, rest[-1].end)

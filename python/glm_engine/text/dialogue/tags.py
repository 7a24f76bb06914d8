"""The tags of GLM-4.5, 4.6 and 4.7, and a reader that finds them in arriving text."""

import re
from collections.abc import Callable, Generator, Iterable
from enum import Enum
from typing import TypeVar

Result = TypeVar("Result")
Reading = Generator[None, None, Result]
ASSISTANT = "<|assistant|>"
THINK = "<think>"
THINK_END = "</think>"
TOOL_CALL = "<tool_call>"
TOOL_CALL_END = "</tool_call>"
ARG_KEY = "<arg_key>"
ARG_KEY_END = "</arg_key>"
ARG_VALUE = "<arg_value>"
ARG_VALUE_END = "</arg_value>"

CALL_TAGS = (TOOL_CALL, TOOL_CALL_END, ARG_KEY, ARG_KEY_END, ARG_VALUE, ARG_VALUE_END)
CALL_PARTS = (ARG_KEY, TOOL_CALL_END)

SPACES = " \t\r\n"
SPACE_RUN = re.compile(f"[{SPACES}]*")
NAME_RUN = re.compile(f"[^<{SPACES}]*")
NOTHING = re.compile(r"(?!)")


def bare(text: str) -> str:
    """Return text without layout around it: white space, and newlines that are spelled out."""
    before = None
    while before != text:
        before, text = text, text.strip(SPACES).removeprefix("\\n").removesuffix("\\n")
    return text


class Opening(Enum):
    """What a turn may begin with."""

    ANSWER = "answer"
    THOUGHT = "thought"
    EITHER = "either"


def opening_of(prompt_text: str) -> Opening:
    """Return how the assistant's turn begins that a rendered prompt ends in.

    GLM-4.7's prompts open the thought or close it; GLM-4.5's leave it to the model to open one.
    """
    _, assistant, turn = prompt_text.rpartition(ASSISTANT)
    if turn.rfind(THINK) > turn.rfind(THINK_END):
        return Opening.THOUGHT
    return Opening.EITHER if assistant and not turn.strip(SPACES) else Opening.ANSWER


def beginnings(tags: Iterable[str], after: str = "") -> str:
    """Return a pattern of the beginnings of tags that go on after some text in them."""
    parts = {
        tag[:size] for tag in tags for size in range(tag.find(after) + len(after) + 1, len(tag))
    }
    return "|".join(map(re.escape, sorted(parts, key=len, reverse=True)))


GAP = rf"(?:[{SPACES}]|\\n){{0,8}}+"
PIECES = beginnings(CALL_TAGS, after="_")
LONGEST_PIECE = max(map(len, CALL_TAGS)) + 2 * 8


class TagSet:
    """Tags that mean something at one place of the grammar; `<` only begins a tag.

    takes_pieces: the beginning of another tag of calls may stand before one; it is dropped.
    """

    def __init__(self, *tags: str, takes_pieces: bool = False) -> None:
        before, open_before = "", ""
        if takes_pieces:
            before, open_before = f"(?:(?:{PIECES}){GAP})?", rf"(?:(?:{PIECES}){GAP}\\?)?"
        begun = (*tags, *CALL_TAGS) if takes_pieces else tags
        whole = "|".join(map(re.escape, tags))
        self.longest = max(map(len, tags), default=0) + LONGEST_PIECE * takes_pieces
        self.pattern = re.compile(f"{before}({whole})") if tags else NOTHING
        self.tail = re.compile(rf"{open_before}(?:{beginnings(begun)})?\Z")


ESCAPED_NEWLINE = TagSet("\\n")


class TagReader:
    """Text that has arrived and was not read yet.

    Its methods are generators: they yield when they need more text, and return what they read.
    After `end` they never yield.
    """

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.num_forgotten = 0
        self.ended = False
        self.is_cut = False
        self.dropped_piece = False
        self.record: list[str] | None = None
        self.record_at = 0

    def push(self, text: str) -> None:
        if self.record is not None:
            self.record.append(self.text[self.record_at : self.at])
            self.record_at = 0
        self.text = self.text[self.at :] + text
        self.num_forgotten += self.at
        self.at = 0

    def end(self, is_cut: bool = False) -> None:
        """Say that no more text comes; `is_cut`: the model might have gone on."""
        self.ended, self.is_cut = True, is_cut

    @property
    def position(self) -> int:
        """How many characters have been read."""
        return self.num_forgotten + self.at

    @property
    def is_at_end(self) -> bool:
        """Whether everything was read and nothing more comes."""
        return self.ended and self.at == len(self.text)

    def begin_record(self) -> None:
        """Keep what is read from here on, for `end_record`."""
        self.record, self.record_at = [], self.at

    def end_record(self) -> str:
        """Return what was read since `begin_record`."""
        pieces, self.record = self.record or [], None
        return "".join([*pieces, self.text[self.record_at : self.at]])

    def has_ended_within(self, length: int) -> bool:
        """Say whether the model ended the turn, and so many characters at most are unread."""
        return self.ended and not self.is_cut and len(self.text) - self.at <= length

    def is_cut_within(self, length: int) -> bool:
        """Say whether the turn was cut, and so many characters at most are unread."""
        return self.ended and self.is_cut and len(self.text) - self.at <= length

    def drop_piece_at_end(self, tags: TagSet) -> bool:
        """Say whether all text ends here, perhaps in the beginning of a tag, which is dropped."""
        ends = self.ended and bool(tags.tail.match(self.text, self.at))
        if ends:
            self.drop_rest()
        return ends

    @property
    def rest(self) -> str:
        return self.text[self.at :]

    def drop_rest(self) -> None:
        self.at = len(self.text)

    def unread(self, tag: str) -> None:
        """Go back to before the tag that was read last."""
        self.at -= len(tag)

    def until(self, tags: TagSet) -> Reading[tuple[str, str]]:
        """Read some text and the tag after it; the tag is "" where only text is certain yet.

        Empty text without a tag means the end.
        """
        while True:
            match = tags.pattern.search(self.text, self.at)
            end = match.start() if match else self.certain_end(tags)
            text, self.at = self.text[self.at : end], match.end() if match else end
            if text or match or self.ended:
                return text, match[1] if match else ""
            yield

    def tag(self, tags: TagSet) -> Reading[str]:
        """Read the tag that stands here; return "" where none of them does."""
        while True:
            if match := tags.pattern.match(self.text, self.at):
                self.at = match.end()
                self.dropped_piece = match.start(1) > match.start()
                return match[1]
            if self.ended or not tags.tail.match(self.text, self.at):
                return ""
            yield

    def sees(self, tags: TagSet) -> Reading[bool]:
        """Say whether one of the tags stands here, and leave it unread."""
        tag = yield from self.tag(tags)
        self.unread(tag)
        return bool(tag)

    def run(self, pattern: re.Pattern[str], longest: int | None = None) -> Reading[str]:
        """Read characters as long as the pattern takes them, hardly more than `longest`."""
        pieces: list[str] = []
        length = 0
        while True:
            match = pattern.match(self.text, self.at)
            end = match.end() if match else self.at
            pieces.append(self.text[self.at : end])
            length, self.at = length + end - self.at, end
            is_over = end < len(self.text) or (longest is not None and length > longest)
            if is_over or self.ended:
                return "".join(pieces)
            yield

    def layout(self) -> Reading[str]:
        """Read white space, newlines among it that are spelled as a backslash and an n."""
        pieces = [(yield from self.run(SPACE_RUN))]
        while newline := (yield from self.tag(ESCAPED_NEWLINE)):
            pieces += [newline, (yield from self.run(SPACE_RUN))]
        return "".join(pieces)

    def certain_end(self, tags: TagSet) -> int:
        """Return where the text ends that cannot be the beginning of a tag."""
        end = len(self.text)
        if self.ended:
            return end
        match = tags.tail.search(self.text, max(self.at, end - tags.longest))
        return match.start() if match else end

    def ahead(
        self, tags: TagSet, count: int, longest: int, goes_on: Callable[[str], bool] = bool
    ) -> Reading[list[tuple[str, str]]]:
        """Return the next texts and the tag after each, `count` at most, and read nothing.

        Where fewer stand within `longest` characters or in all text, the last has the tag "".
        goes_on: says of the text that stands there whether it is worth to wait for more.
        """
        while True:
            found, at, most = [], self.at, self.at + longest
            for match in tags.pattern.finditer(self.text, self.at, most):
                found.append((self.text[at : match.start()], match[1]))
                at = match.end()
                if len(found) == count:
                    return found
            rest = self.text[at:most]
            if self.ended or len(self.text) >= most or (rest and not goes_on(rest)):
                return [*found, (rest, "")]
            yield

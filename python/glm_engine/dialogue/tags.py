"""The tags of GLM-4.5, 4.6 and 4.7, and a reader that finds them in arriving text."""

import re
from enum import Enum

ASSISTANT = "<|assistant|>"
THINK = "<think>"
THINK_END = "</think>"
TOOL_CALL = "<tool_call>"
TOOL_CALL_END = "</tool_call>"
ARG_KEY = "<arg_key>"
ARG_KEY_END = "</arg_key>"
ARG_VALUE = "<arg_value>"
ARG_VALUE_END = "</arg_value>"

SPACES = " \t\r\n"
SPACE_RUN = re.compile(f"[{SPACES}]*")
NAME_RUN = re.compile(f"[^<{SPACES}]*")
NOTHING = re.compile(r"(?!)")


class Opening(Enum):
    """What a turn may begin with."""

    ANSWER = "answer"
    THOUGHT = "thought"
    EITHER = "either"


def opening_of(prompt_text):
    """Return how the assistant's turn begins that a rendered prompt ends in.

    GLM-4.7's prompts open the thought or close it; GLM-4.5's leave it to the model to open one.
    """
    _, assistant, turn = prompt_text.rpartition(ASSISTANT)
    if turn.rfind(THINK) > turn.rfind(THINK_END):
        return Opening.THOUGHT
    return Opening.EITHER if assistant and not turn.strip(SPACES) else Opening.ANSWER


class TagSet:
    """Tags that mean something at one place of the grammar; `<` only begins a tag."""

    def __init__(self, *tags):
        self.longest = max(map(len, tags), default=0)
        self.pattern = re.compile("|".join(map(re.escape, tags))) if tags else NOTHING
        self.beginnings = frozenset(tag[:size] for tag in tags for size in range(1, len(tag)))


ESCAPED_NEWLINE = TagSet("\\n")


class TagReader:
    """Text that has arrived and was not read yet.

    Its methods are generators: they yield when they need more text, and return what they read.
    After `end` they never yield.
    """

    def __init__(self):
        self.text = ""
        self.at = 0
        self.num_forgotten = 0
        self.ended = False
        self.record = None
        self.record_at = 0

    def push(self, text):
        if self.record is not None:
            self.record.append(self.text[self.record_at : self.at])
            self.record_at = 0
        self.text = self.text[self.at :] + text
        self.num_forgotten += self.at
        self.at = 0

    def end(self):
        self.ended = True

    @property
    def position(self):
        """How many characters have been read."""
        return self.num_forgotten + self.at

    @property
    def is_at_end(self):
        """Whether everything was read and nothing more comes."""
        return self.ended and self.at == len(self.text)

    def begin_record(self):
        """Keep what is read from here on, for `end_record`."""
        self.record, self.record_at = [], self.at

    def end_record(self):
        """Return what was read since `begin_record`."""
        pieces, self.record = self.record, None
        return "".join([*pieces, self.text[self.record_at : self.at]])

    def unread(self, tag):
        """Go back to before the tag that was read last."""
        self.at -= len(tag)

    def drop_rest_at_end(self):
        if self.ended:
            self.at = len(self.text)

    def until(self, tags):
        """Read some text and the tag after it; the tag is "" where only text is certain yet.

        Empty text without a tag means the end.
        """
        while True:
            match = tags.pattern.search(self.text, self.at)
            end = match.start() if match else self.certain_end(tags)
            text, self.at = self.text[self.at : end], match.end() if match else end
            if text or match or self.ended:
                return text, match.group() if match else ""
            yield

    def tag(self, tags):
        """Read the tag that stands here; return "" where none of them does."""
        while True:
            if match := tags.pattern.match(self.text, self.at):
                self.at = match.end()
                return match.group()
            here = self.text[self.at : self.at + tags.longest]
            if self.ended or (here and here not in tags.beginnings):
                return ""
            yield

    def sees(self, tags):
        """Say whether one of the tags stands here, and leave it unread."""
        tag = yield from self.tag(tags)
        self.unread(tag)
        return bool(tag)

    def run(self, pattern, longest=None):
        """Read characters as long as the pattern takes them, hardly more than `longest`."""
        pieces, length = [], 0
        while True:
            end = pattern.match(self.text, self.at).end()
            pieces.append(self.text[self.at : end])
            length, self.at = length + end - self.at, end
            is_over = end < len(self.text) or (longest is not None and length > longest)
            if is_over or self.ended:
                return "".join(pieces)
            yield

    def layout(self):
        """Read white space, newlines among it that are spelled as a backslash and an n."""
        pieces = [(yield from self.run(SPACE_RUN))]
        while newline := (yield from self.tag(ESCAPED_NEWLINE)):
            pieces += [newline, (yield from self.run(SPACE_RUN))]
        return "".join(pieces)

    def certain_end(self, tags):
        """Return where the text ends that cannot be the beginning of a tag."""
        end = len(self.text)
        if self.ended:
            return end
        begin = self.text.rfind("<", max(self.at, end - tags.longest))
        return begin if begin >= 0 and self.text[begin:] in tags.beginnings else end

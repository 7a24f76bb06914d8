"""The grammar of one tool call, as generators that wait for text."""

import re

from glm_engine.dialogue import tags
from glm_engine.dialogue.arguments import ArgumentsWriter
from glm_engine.dialogue.deltas import CallArguments, CallBegin, CallEnd
from glm_engine.dialogue.tags import TagSet

LONGEST_NAME = 256
CALL_PARTS = TagSet(tags.ARG_KEY, tags.TOOL_CALL_END)
VALUE_BEGIN = TagSet(tags.ARG_VALUE)
ESCAPED_END = re.compile(r"(?:\\n)+\Z")


class CallReader:
    """Reads calls, one after another, into deltas.

    parameters: the schema of each tool's arguments, by its name.
    outer_ends: tags that end what stands around the calls; they are left unread, and the call
    that they come in ends like one that all text ends in.
    """

    def __init__(self, reader, parameters, deltas, outer_ends=()):
        self.reader = reader
        self.parameters = parameters
        self.deltas = deltas
        self.outer_ends = outer_ends
        self.key_end = TagSet(tags.ARG_KEY_END, *outer_ends)
        self.value_end = TagSet(tags.ARG_VALUE_END, *outer_ends)
        self.num_calls = 0

    @property
    def has_whole_calls(self):
        """Whether the last call, and so every one, came to its end."""
        return bool(self.deltas) and type(self.deltas[-1]) is CallEnd

    def read(self):
        """Read what follows `<tool_call>`; return it where it only looked like a call, else ""."""
        before = yield from self.reader.layout()
        text = yield from self.reader.run(tags.NAME_RUN, LONGEST_NAME)
        after = yield from self.reader.layout()
        name = ESCAPED_END.sub("", text) if len(text) <= LONGEST_NAME else ""
        tag = (yield from self.reader.tag(CALL_PARTS)) if name else ""
        if not tag:
            return f"{tags.TOOL_CALL}{before}{text}{after}"
        yield from self.arguments(name, tag)
        return ""

    def arguments(self, name, tag):
        """Read pairs of key and value; without the end of the call, its JSON stays open."""
        index, self.num_calls = self.num_calls, self.num_calls + 1
        self.deltas.append(CallBegin(index, name))
        writer = ArgumentsWriter(self.parameters.get(name))
        while tag == tags.ARG_KEY:
            tag = yield from self.pair(index, writer)
        if tag:
            self.write(index, writer.close())
            self.deltas.append(CallEnd(index))

    def pair(self, index, writer):
        """Read one key and its value; return the tag after it, "" where text ended."""
        if not (yield from self.key(writer)):
            self.write(index, writer.unfinished_key())
            return ""
        self.write(index, writer.begin_value())
        is_whole, tag = yield from self.value(index, writer)
        self.write(index, writer.end_value() if is_whole else writer.unfinished_value())
        return tag

    def key(self, writer):
        """Read a key up to where its value begins, with its tag or without; say if it does."""
        if not (yield from self.closed(writer.push_key, self.key_end)):
            return False
        yield from self.reader.layout()
        yield from self.reader.tag(VALUE_BEGIN)
        self.reader.drop_rest_at_end()
        return not self.reader.ended

    def value(self, index, writer):
        """Read a value up to a closing tag that goes on with the call; any other is text.

        Returns whether the value was closed, and the tag that follows: "" where all text ended,
        perhaps in a piece of that tag, or where an outer end stands.
        """

        def push(text):
            self.write(index, writer.push_value(text))

        while tag := (yield from self.closed(push, self.value_end)):
            spaces = yield from self.reader.layout()
            follower = yield from self.reader.tag(CALL_PARTS)
            if follower or self.reader.ended:
                self.reader.drop_rest_at_end()
                return True, follower
            push(tag + spaces)
        return False, ""

    def closed(self, push, closing):
        """Read text up to a closing tag; return that, "" where all text or what is around ends."""
        tag = ""
        while not tag and not self.reader.is_at_end:
            text, tag = yield from self.reader.until(closing)
            push(text)
        if tag in self.outer_ends:
            self.reader.unread(tag)
            return ""
        return tag

    def write(self, index, text):
        if text:
            self.deltas.append(CallArguments(index, text))

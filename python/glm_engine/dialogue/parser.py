"""The grammar of an assistant's turn, as generators that wait for text."""

from glm_engine.dialogue import tags
from glm_engine.dialogue.arguments import ArgumentsWriter
from glm_engine.dialogue.deltas import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Reasoning,
    joined,
)
from glm_engine.dialogue.schema import parameters_of
from glm_engine.dialogue.tags import TagReader, TagSet

LONGEST_NAME = 256
OPENING = TagSet(tags.THINK, tags.THINK_END)
THOUGHT = TagSet(tags.THINK_END)
ANSWER = TagSet(tags.TOOL_CALL)
ANSWER_WITHOUT_CALLS = TagSet()
CALL_PARTS = TagSet(tags.ARG_KEY, tags.TOOL_CALL_END)
KEY_END = TagSet(tags.ARG_KEY_END)
VALUE_BEGIN = TagSet(tags.ARG_VALUE)
VALUE_END = TagSet(tags.ARG_VALUE_END)


class DialogueParser:
    """Splits the text of one assistant's turn into deltas.

    in_reasoning: the prompt leaves a thought open (`starts_in_reasoning`).
    tools: the OpenAI tool list; its schemas give the arguments their types.
    parses_tool_calls: False leaves the text of calls in the content.
    continues_turn: the text goes on with a turn that the prompt holds the beginning of, so that
    spaces and thinking tags at its beginning are text.
    """

    def __init__(self, in_reasoning, tools=(), parses_tool_calls=True, continues_turn=False):
        self.reader = TagReader()
        self.answer_tags = ANSWER if parses_tool_calls else ANSWER_WITHOUT_CALLS
        self.parameters = parameters_of(tools)
        self.deltas = []
        self.spaces = []
        self.num_calls = 0
        self.grammar = self.turn(in_reasoning, continues_turn)
        next(self.grammar)

    def push(self, text):
        """Take text; returns the deltas that are certain with it."""
        if self.reader.ended:
            raise ValueError("push after finish")
        if text:
            self.reader.push(text)
            next(self.grammar)
        return self.taken()

    def finish(self):
        """Return the deltas of what was held back, now that no more text comes."""
        self.reader.end()
        next(self.grammar, None)
        return self.taken()

    def taken(self):
        deltas, self.deltas = self.deltas, []
        return joined(deltas)

    def turn(self, in_reasoning, continues_turn):
        if not continues_turn:
            yield from self.reader.run(tags.SPACE_RUN)
            tag = yield from self.reader.tag(OPENING)
            in_reasoning = tag == tags.THINK or (in_reasoning and not tag)
            yield from self.reader.run(tags.SPACE_RUN)
        if in_reasoning:
            yield from self.prose(Reasoning, THOUGHT)
            self.spaces.clear()
            yield from self.reader.run(tags.SPACE_RUN)
        yield from self.answer()

    def answer(self):
        while (yield from self.prose(Content, self.answer_tags)):
            yield from self.call()

    def prose(self, kind, end_tags):
        """Write text up to one of the tags; return it, "" at the end of all text."""
        while True:
            text, tag = yield from self.reader.until(end_tags)
            self.write(kind, text)
            if tag:
                return tag
            if self.reader.ended or end_tags is ANSWER_WITHOUT_CALLS:
                self.write_spaces(kind)
            if self.reader.ended:
                return ""

    def write(self, kind, text):
        """Write text but for the spaces at its end: before a tag they are layout."""
        body = text.rstrip(tags.SPACES)
        if body:
            self.deltas.append(kind("".join([*self.spaces, body])))
            self.spaces.clear()
        if len(body) < len(text):
            self.spaces.append(text[len(body) :])

    def write_spaces(self, kind):
        if self.spaces:
            self.deltas.append(kind("".join(self.spaces)))
            self.spaces.clear()

    def call(self):
        """Read what follows `<tool_call>`: a call, or text that only looked like one."""
        before = yield from self.reader.run(tags.SPACE_RUN)
        name = yield from self.reader.run(tags.NAME_RUN, LONGEST_NAME)
        after = yield from self.reader.run(tags.SPACE_RUN)
        tag = ""
        if 0 < len(name) <= LONGEST_NAME:
            tag = yield from self.reader.tag(CALL_PARTS)
        if not tag:
            self.write(Content, f"{tags.TOOL_CALL}{before}{name}{after}")
            return
        self.spaces.clear()
        yield from self.arguments(name, tag)
        yield from self.reader.run(tags.SPACE_RUN)

    def arguments(self, name, tag):
        """Read pairs of key and value; without the end of the call, its JSON stays open."""
        index, self.num_calls = self.num_calls, self.num_calls + 1
        self.deltas.append(CallBegin(index, name))
        writer = ArgumentsWriter(self.parameters.get(name))
        while tag == tags.ARG_KEY:
            tag = yield from self.pair(index, writer)
        if tag:
            self.write_arguments(index, writer.close())
            self.deltas.append(CallEnd(index))

    def pair(self, index, writer):
        """Read one key and its value; return the tag after it, "" where text ended."""
        _, tag = yield from self.enclosed(index, writer.push_key, KEY_END, VALUE_BEGIN)
        if not tag:
            self.write_arguments(index, writer.unfinished_key())
            return ""
        self.write_arguments(index, writer.begin_value())
        is_whole, tag = yield from self.enclosed(index, writer.push_value, VALUE_END, CALL_PARTS)
        text = writer.end_value() if is_whole else writer.unfinished_value()
        self.write_arguments(index, text)
        return tag

    def enclosed(self, index, push, closing, followers):
        """Read text up to a closing tag that a follower comes after; any other is text.

        Returns whether the text was closed, and the follower: "" where all text ended, perhaps
        in a piece of the follower.
        """
        while True:
            text, tag = yield from self.reader.until(closing)
            self.write_arguments(index, push(text))
            if not tag:
                if self.reader.ended:
                    return False, ""
                continue
            spaces = yield from self.reader.run(tags.SPACE_RUN)
            follower = yield from self.reader.tag(followers)
            if follower or self.reader.ended:
                self.reader.drop_rest_at_end()
                return True, follower
            self.write_arguments(index, push(tag + spaces))

    def write_arguments(self, index, text):
        if text:
            self.deltas.append(CallArguments(index, text))

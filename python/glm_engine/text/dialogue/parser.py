"""The grammar of an assistant's turn, as generators that wait for text."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from glm_engine.text.dialogue import tags
from glm_engine.text.dialogue.calls import CallReader
from glm_engine.text.dialogue.deltas import CallBegin, CallEnd, Content, Delta, Reasoning, joined
from glm_engine.text.dialogue.schema import parameters_of
from glm_engine.text.dialogue.tags import Reading, TagReader, TagSet

Prose = type[Content] | type[Reasoning]
OPENING = TagSet(tags.THINK, tags.THINK_END)
THOUGHT = TagSet(tags.THINK_END, tags.TOOL_CALL)
THOUGHT_WITHOUT_CALLS = TagSet(tags.THINK_END)
ANSWER = TagSet(tags.TOOL_CALL)
ANSWER_WITHOUT_CALLS = TagSet()
DOUBLED_ENDS = TagSet(tags.TOOL_CALL_END, tags.ARG_VALUE_END, tags.ARG_KEY_END)


class DialogueParser:
    """Splits the text of one assistant's turn into deltas.

    in_reasoning: the prompt leaves a thought open (`opening_of`).
    tools: the OpenAI tool list; its schemas give the arguments their types.
    parses_tool_calls: False leaves the text of calls in the content.
    calls_come_first: an answer that does not begin with a call is a document without calls.
    continues_turn: the text goes on with a turn that the prompt holds the beginning of, so that
    spaces and thinking tags at its beginning are text.
    keeps_spaces: those before the answer are text, too.
    """

    def __init__(
        self,
        in_reasoning: bool,
        tools: Sequence[Mapping[str, Any]] = (),
        parses_tool_calls: bool = True,
        calls_come_first: bool = False,
        continues_turn: bool = False,
        keeps_spaces: bool = False,
    ) -> None:
        self.reader = TagReader()
        self.thought_tags = THOUGHT if parses_tool_calls else THOUGHT_WITHOUT_CALLS
        self.answer_tags = ANSWER if parses_tool_calls else ANSWER_WITHOUT_CALLS
        self.calls_come_first = calls_come_first
        self.keeps_spaces = keeps_spaces
        self.parameters = parameters_of(tools) if tools else {}
        self.deltas: list[Delta] = []
        self.spaces: list[str] = []
        self.layout_of_calls: list[Content] = []
        self.has_answered = continues_turn and not in_reasoning
        self.grammar = self.turn(in_reasoning, continues_turn)
        next(self.grammar)

    def push(self, text: str) -> list[Delta]:
        """Take text; returns the deltas that are certain with it."""
        if self.reader.ended:
            raise ValueError("push after finish")
        if text:
            self.reader.push(text)
            next(self.grammar)
        return self.taken()

    def finish(self, is_cut: bool = False) -> list[Delta]:
        """Return the deltas of what was held back, now that no more text comes.

        is_cut: the model did not end the turn itself, so that it might have gone on.
        """
        self.reader.end(is_cut)
        next(self.grammar, None)
        return self.taken()

    def taken(self) -> list[Delta]:
        deltas = joined(self.deltas) if len(self.deltas) > 1 else self.deltas[:]
        self.deltas.clear()
        return deltas

    def turn(self, in_reasoning: bool, continues_turn: bool) -> Reading[None]:
        if not continues_turn:
            spaces = yield from self.reader.run(tags.SPACE_RUN)
            tag = yield from self.reader.tag(OPENING)
            in_reasoning = tag == tags.THINK or (in_reasoning and not tag)
            if in_reasoning or not self.keeps_spaces:
                yield from self.reader.run(tags.SPACE_RUN)
            elif spaces and not tag:
                self.spaces.append(spaces)
        if in_reasoning:
            yield from self.thought()
            self.spaces.clear()
            if not self.keeps_spaces:
                yield from self.reader.run(tags.SPACE_RUN)
        yield from self.answer()

    def thought(self) -> Reading[None]:
        while (yield from self.prose(Reasoning, self.thought_tags)) == tags.TOOL_CALL:
            yield from self.calls_in_thought()

    def calls_in_thought(self) -> Reading[None]:
        """Hold calls back: they are thought, and so are all after them, unless the turn ends."""
        calls = CallReader(self.reader, self.parameters, [], (tags.THINK_END,))
        self.reader.begin_record()
        tag = tags.TOOL_CALL
        while tag and not (yield from calls.read()) and calls.are_whole:
            yield from self.after_call()
            tag = yield from self.reader.tag(ANSWER)
        text = self.reader.end_record()
        if not tag and self.reader.is_at_end and not self.reader.is_cut:
            self.spaces.clear()
            self.deltas += calls.deltas
            return
        self.write(Reasoning, f"{tags.TOOL_CALL}{text}")
        if calls.num_calls:
            self.thought_tags = THOUGHT_WITHOUT_CALLS

    def answer(self) -> Reading[None]:
        calls = None
        if self.calls_come_first:
            self.write(Content, (yield from self.reader.run(tags.SPACE_RUN)))
            if not (yield from self.reader.sees(ANSWER)):
                self.answer_tags = ANSWER_WITHOUT_CALLS
        while tag := (yield from self.prose(Content, self.answer_tags)):
            begin = self.reader.position - len(tag)
            calls = calls or CallReader(self.reader, self.parameters, self.deltas)
            if text := (yield from calls.read()):
                self.write(Content, text)
            else:
                self.set_apart("".join(self.spaces), begin)
                self.spaces.clear()
                yield from self.after_call(keeps_layout=True)
            if not calls.are_whole:
                self.answer_tags = ANSWER_WITHOUT_CALLS

    def after_call(self, keeps_layout: bool = False) -> Reading[None]:
        """Read layout and closing tags that a call has twice; text behind them keeps the layout."""
        is_over = False
        while not is_over:
            layout = yield from self.reader.layout()
            if keeps_layout:
                self.set_apart(layout, self.reader.position)
            is_over = not (yield from self.reader.tag(DOUBLED_ENDS))

    def set_apart(self, layout: str, end: int) -> None:
        """Keep layout beside a call for text after it; an answer does not begin with spaces."""
        text = layout if self.has_answered else layout.lstrip(tags.SPACES)
        if text:
            self.layout_of_calls.append(Content(text, end))

    def prose(self, kind: Prose, end_tags: TagSet) -> Reading[str]:
        """Write text up to one of the tags; return it, "" at the end of all text."""
        while True:
            text, tag = yield from self.reader.until(end_tags)
            self.write(kind, text, tag)
            if tag:
                return tag
            if self.reader.ended or end_tags is ANSWER_WITHOUT_CALLS:
                self.write_spaces(kind)
            if self.reader.ended:
                return ""

    def write(self, kind: Prose, text: str, tag: str = "") -> None:
        """Write text but for the spaces at its end: before a tag they are layout.

        The text was read last, or before nothing but `tag`.
        """
        body = text.rstrip(tags.SPACES)
        if body:
            self.has_answered |= kind is Content
            self.deltas += self.layout_of_calls
            self.layout_of_calls.clear()
            end = self.reader.position - len(tag) - (len(text) - len(body))
            self.deltas.append(kind("".join([*self.spaces, body]), end))
            self.spaces.clear()
        if len(body) < len(text):
            self.spaces.append(text[len(body) :])

    def write_spaces(self, kind: Prose) -> None:
        if self.spaces:
            self.deltas.append(kind("".join(self.spaces), self.reader.position))
            self.spaces.clear()


class Turn:
    """One turn of the assistant.

    takes_one_call: the first whole call is the last thing shown. num_calls: how many calls are
    whole; one that is not may come behind them. is_cut: the model might have gone on.
    """

    def __init__(
        self, parser: DialogueParser, shows_reasoning: bool = True, takes_one_call: bool = False
    ) -> None:
        self.parser = parser
        self.shows_reasoning = shows_reasoning
        self.takes_one_call = takes_one_call
        self.num_calls = 0
        self.num_begun = 0
        self.is_cut = False

    def shown(self, deltas: Iterable[Delta]) -> Iterator[Delta]:
        """Yield the deltas that are shown, and count calls."""
        for delta in deltas:
            if self.is_over:
                return
            self.num_begun += type(delta) is CallBegin
            self.num_calls += type(delta) is CallEnd
            if self.shows_reasoning or type(delta) is not Reasoning:
                yield delta

    @property
    def is_over(self) -> bool:
        """Whether nothing that may still come is shown."""
        return self.takes_one_call and self.num_calls > 0

    @property
    def asks_for_calls(self) -> bool:
        """Whether the model ended the turn in order that its calls are made, all whole."""
        return self.is_over or (not self.is_cut and 0 < self.num_calls == self.num_begun)

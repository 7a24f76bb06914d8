"""Where the answer of a turn begins, for what counts in the answer alone."""

from glm_engine.text.dialogue import tags
from glm_engine.text.dialogue.tags import Reading, TagReader, TagSet

Parts = tuple[str, str, str]
OPENING = TagSet(tags.THINK, tags.THINK_END)
THOUGHT = TagSet(tags.THINK_END)


class AnswerFinder:
    """Tells thought, layout and answer apart in the text of one turn, as it arrives.

    Its arguments are those of `DialogueParser`. Layout is the white space before the answer.
    """

    def __init__(
        self, in_reasoning: bool = False, continues_turn: bool = False, keeps_spaces: bool = False
    ) -> None:
        self.reader = TagReader()
        self.thought: list[str] = []
        self.layout, self.begin = "", ""
        self.is_found = False
        self.search = self.turn(in_reasoning, continues_turn, keeps_spaces)
        next(self.search, None)

    def push(self, text: str) -> Parts:
        """Take text; return (thought, layout, answer), each as far as it is certain."""
        if self.is_found:
            return "", "", text
        if not text:
            return "", "", ""
        self.reader.push(text)
        return self.taken()

    def finish(self) -> Parts:
        """Return what was held back, in the same form, now that no more text comes."""
        if self.is_found:
            return "", "", ""
        self.reader.end()
        return self.taken()

    def taken(self) -> Parts:
        next(self.search, None)
        thought, layout = "".join(self.thought), self.layout
        self.thought, self.layout = [], ""
        rest = self.reader.text[self.reader.at :] if self.is_found else ""
        return thought, layout, self.begin + rest

    def turn(self, in_reasoning: bool, continues_turn: bool, keeps_spaces: bool) -> Reading[None]:
        spaces, is_text = "", keeps_spaces or (continues_turn and not in_reasoning)
        if not continues_turn:
            spaces = yield from self.reader.run(tags.SPACE_RUN)
            tag = yield from self.reader.tag(OPENING)
            in_reasoning = tag == tags.THINK or (in_reasoning and not tag)
            if tag or in_reasoning:
                self.thought += [spaces, tag]
                spaces = ""
        if in_reasoning:
            yield from self.read_thought()
        if is_text:
            self.begin = spaces
        else:
            self.layout = spaces + (yield from self.reader.run(tags.SPACE_RUN))
        self.is_found = True

    def read_thought(self) -> Reading[None]:
        tag = ""
        while not tag and not self.reader.is_at_end:
            text, tag = yield from self.reader.until(THOUGHT)
            self.thought += [text, tag]

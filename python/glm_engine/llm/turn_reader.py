"""A chat's answer as content, reasoning and tool calls, while it arrives."""

import uuid
from collections.abc import Sequence

from glm_engine.llm.outputs import CompletionOutput, OutputChunk, ToolCall, ToolCallChunk
from glm_engine.text.dialogue import (
    CallArguments,
    CallBegin,
    Content,
    Delta,
    DialogueParser,
    Reasoning,
)
from glm_engine.text.dialogue.parser import Turn


class TurnReader(Turn):
    """Reads the text of one answer."""

    def __init__(self, parser: DialogueParser, takes_one_call: bool) -> None:
        super().__init__(parser, takes_one_call=takes_one_call)
        self.contents: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[tuple[str, str, list[str]]] = []

    def take(self, text: str, chunk: OutputChunk) -> None:
        """Read a piece of text into a chunk."""
        if text and not self.is_over:
            self.show(self.parser.push(text), chunk)

    def finish(self, is_cut: bool, chunk: OutputChunk) -> None:
        """Read what was held back into the last chunk."""
        self.is_cut = is_cut
        if not self.is_over:
            self.show(self.parser.finish(is_cut), chunk)

    def show(self, deltas: Sequence[Delta], chunk: OutputChunk) -> None:
        """Add deltas to the answer and to a chunk, none behind the one call that is wanted."""
        for delta in self.shown(deltas):
            self.add(delta, chunk)

    def add(self, delta: Delta, chunk: OutputChunk) -> None:
        """Add one delta to the answer and to a chunk."""
        match delta:
            case Content(text=text):
                self.contents.append(text)
                chunk.content += text
            case Reasoning(text=text):
                self.thoughts.append(text)
                chunk.reasoning += text
            case CallBegin(index=index, name=name):
                call_id = f"call_{uuid.uuid4().hex[:24]}"
                self.calls.append((call_id, name, []))
                chunk.tool_calls.append(ToolCallChunk(index, "", call_id, name))
            case CallArguments(index=index, text=text):
                self.calls[index][2].append(text)
                chunk.tool_calls.append(ToolCallChunk(index, text))

    def write(self, output: CompletionOutput) -> None:
        """Write the parts of the whole answer; calls alone leave no content."""
        calls = [ToolCall(one, name, "".join(texts)) for one, name, texts in self.calls]
        content = "".join(self.contents)
        output.tool_calls = calls
        output.content = (content or None) if calls else content
        output.reasoning = "".join(self.thoughts) or None

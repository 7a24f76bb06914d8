"""What comes of an answer, as text on standard output while it comes."""

import sys
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

import click

from glm_engine.core.console import can_dim, printable, shown_on
from glm_engine.text.dialogue import CallArguments, CallBegin, CallEnd, Content, Delta, Reasoning

if TYPE_CHECKING:
    from glm_engine.terminal.markdown import MarkdownStream

CALL = "[tool call] "
THOUGHT, THOUGHT_END = "<think>\n", "\n</think>\n"


def note(text: str) -> None:
    """Say one line about the conversation on standard error."""
    click.echo(f"glm: {printable(' '.join(text.split()))}", err=True)


class Display:
    """Writes deltas; a terminal gets no character that it would obey.

    A terminal that has styles shows Markdown as such and thoughts dim; any other stream gets the
    text as it is, and thoughts between tags.
    """

    def __init__(
        self, shows_thoughts: bool, stream: TextIO | None = None, shows_markdown: bool = True
    ) -> None:
        self.stream = stream or sys.stdout
        self.shows_thoughts = shows_thoughts
        self.dims = can_dim(self.stream)
        self.shows_markdown = shows_markdown and self.dims
        self.part: type[Delta] | None = None
        self.ends_line = True

    @cached_property
    def markdown(self) -> "MarkdownStream":
        from glm_engine.terminal.markdown import MarkdownStream

        return MarkdownStream(self.put)

    def take(self, deltas: Iterable[Delta]) -> None:
        """Show what an answer goes on with."""
        for delta in deltas:
            if type(delta) is CallEnd:
                self.enter(None)
            elif type(delta) is CallBegin:
                self.enter(None)
                self.enter(CallBegin)
                self.write(f"{CALL}{delta.name}(")
            elif type(delta) is CallArguments:
                self.write(delta.text)
            elif type(delta) is Content:
                self.enter(Content)
                if self.shows_markdown:
                    self.markdown.push(shown_on(self.stream, delta.text))
                else:
                    self.write(delta.text)
            elif type(delta) is Reasoning and self.shows_thoughts:
                self.enter(Reasoning)
                self.write(delta.text, is_dim=True)
        self.stream.flush()

    def end(self) -> None:
        """End the last line of an answer."""
        self.enter(None)
        if not self.ends_line:
            self.write("\n")
        self.stream.flush()

    def enter(self, part: type[Delta] | None) -> None:
        """Go from one part of an answer to another."""
        if part is self.part:
            return
        if self.part is Content and self.shows_markdown:
            self.markdown.finish()
        if self.part is CallBegin:
            self.write(")")
        if self.part is Reasoning:
            self.write("\n\n" if self.dims else THOUGHT_END)
        elif not self.ends_line:
            self.write("\n")
        self.part = part
        if part is Reasoning and not self.dims:
            self.write(THOUGHT)

    def write(self, text: str, is_dim: bool = False) -> None:
        shown = shown_on(self.stream, text)
        self.put(click.style(shown, dim=True) if is_dim and self.dims else shown)
        if text:
            self.ends_line = text.endswith("\n")

    def put(self, text: str) -> None:
        """Write what is ready for the stream."""
        self.stream.write(text)
        if text:
            self.ends_line = text.endswith("\n")

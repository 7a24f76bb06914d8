"""Styled characters on a terminal, wrapped between words, none of them written twice."""

from collections.abc import Callable, Iterable
from itertools import groupby
from operator import itemgetter
from shutil import get_terminal_size

from rich.cells import get_character_cell_size
from rich.color import ColorSystem
from rich.style import Style

SPACE = " "
WIDE = 2
Styled = tuple[str, Style | None]
Write = Callable[[str], object]


def escaped(characters: Iterable[Styled]) -> str:
    """Return (character, style) pairs as text with the terminal's codes for their styles."""
    runs = groupby(characters, key=itemgetter(1))
    return "".join(rendered("".join(one for one, _ in run), style) for style, run in runs)


def rendered(text: str, style: Style | None) -> str:
    if style is None:
        return text
    return style.render(text, color_system=ColorSystem.STANDARD)


class WordWrap:
    """Writes a line character by character; a word waits until it is whole.

    Wide characters, as those of Chinese, are words of their own.
    """

    def __init__(self, write: Write) -> None:
        self.write = write
        self.begin_line()

    def begin_line(self, indent: int = 0) -> None:
        """Begin a line whose further rows are indented by so many columns."""
        self.width = get_terminal_size().columns
        self.indent = indent if indent < self.width // 2 else 0
        self.column = 0
        self.spaces: list[Styled] = []
        self.word: list[Styled] = []
        self.word_width = 0

    def push(self, characters: Iterable[Styled]) -> None:
        for pair in characters:
            size = get_character_cell_size(pair[0])
            if pair[0] == SPACE or size == WIDE:
                self.end_word()
            if pair[0] == SPACE:
                self.spaces.append(pair)
            else:
                self.word.append(pair)
                self.word_width += size
            if size == WIDE:
                self.end_word()

    def end_word(self) -> None:
        """Write the word that waits, on a new row where this one has no room for it."""
        if not self.word:
            return
        width = len(self.spaces) + self.word_width
        if self.column > self.indent and self.column + width > self.width:
            self.write("\n" + SPACE * self.indent)
            self.column, self.spaces = self.indent, []
        self.write(escaped([*self.spaces, *self.word]))
        self.column += len(self.spaces) + self.word_width
        self.spaces, self.word, self.word_width = [], [], 0

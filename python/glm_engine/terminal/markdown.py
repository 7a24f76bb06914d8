"""Markdown shown on a terminal while it streams.

Each line is styled as far as its styles are certain, and what was written is never drawn again:
there is no flicker, and a resized window or Ctrl-C leaves nothing behind. A table is drawn when it
is whole, a line of code when it has ended.
"""

import io
import re
from collections.abc import Sequence
from shutil import get_terminal_size

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.style import Style
from rich.syntax import Syntax

from glm_engine.core.console import terminal_text
from glm_engine.terminal.wrapping import Styled, WordWrap, Write, escaped, rendered

PARSER = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
PARSER.disable(["autolink", "entity", "escape", "image"])
MAX_UNCLOSED = 400
MAX_WORD = 800
MAX_STYLED = 4000
MAX_TABLE, MAX_CODE = 20_000, 20_000
CODE_WINDOW = 100
CODE_THEME = "ansi_dark"
RULE_WIDTH = 40
NESTING = {
    "strong": Style(bold=True),
    "em": Style(italic=True),
    "s": Style(strike=True),
    "link": Style(underline=True),
}
PLAIN, DIM, HEADING = Style(), Style(dim=True), Style(bold=True)
CODE = Style(color="cyan")
FENCE = re.compile(r"\s*(`{3,}|~{3,})([^`]*)")
RULE = re.compile(r"\s*(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})")
BLOCK = re.compile(r"(\s*)(?:(#{1,6})|([-*+])|(\d{1,9}[.)])|(>))\s+")
MAYBE_BLOCK = re.compile(r"[-*+_#>`~=\s]*|\s*\d{1,9}[.)]?\s*")
TABLE_ROW = re.compile(r"\s*\|.*")
TABLE_HEAD = re.compile(r"[\s:|-]+")
BLANK = re.compile("(?:\\s|\x1b\\[[0-9;]*m)*")
BREAK = re.compile(r"\s|[\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uff60](?=[^_*])")
OPENER = re.compile(r"`+|(?<!\w)_+(?=\S|$)|\*+(?=\S|$)|~+(?=[^\s~]|$)|!?\[")


def certain_end(line: str, begin: int) -> int:
    """Return where the words end that keep their style whatever follows; spans stay whole."""
    at = end = begin
    while found := OPENER.search(line, at):
        end = last_break(line, at, found.start(), end)
        closer = closer_of(found[0]).search(line, found.end(), found.end() + MAX_UNCLOSED)
        if not closer and len(line) - found.start() <= MAX_UNCLOSED:
            return end
        at = closer.end() if closer else found.end()
    end = last_break(line, at, len(line), end)
    return len(line) if len(line) - end > MAX_WORD else end


def last_break(line: str, begin: int, stop: int, otherwise: int) -> int:
    """Return the end of the last place between two words."""
    for found in BREAK.finditer(line, begin, stop):
        otherwise = found.end()
    return otherwise


def closer_of(mark: str) -> re.Pattern[str]:
    """Return the pattern of what ends a span that this mark begins."""
    if mark.endswith("["):
        return re.compile(r"\](?:\([^)]*\)|[^(])")
    before, after = {"`": ("(?<!`)", "[^`]"), "_": (r"(?<=\S)", r"\W")}.get(
        mark[0], (r"(?<=\S)", f"[^{mark[0]}]")
    )
    return re.compile(f"{before}{re.escape(mark)}(?={after})")


def inline(text: str, base: Style = PLAIN) -> list[Styled]:
    """Return the styled characters of a line without its block mark."""
    if len(text) > MAX_STYLED:
        return [(one, base) for one in text]
    shown: list[Styled] = []
    styles, links = [base], []
    for token in PARSER.parseInline(text)[0].children or ():
        kind = token.type.removesuffix("_open").removesuffix("_close")
        if token.nesting > 0:
            styles.append(styles[-1] + NESTING[kind])
            links.append((str(token.attrs.get("href", "")), len(shown)))
        elif token.nesting < 0:
            styles.pop()
            shown += address(*links.pop(), shown)
        else:
            style = styles[-1] + CODE if kind == "code_inline" else styles[-1]
            shown += [(one, style) for one in terminal_text(token.content)]
    return shown


def address(target: str, begin: int, shown: Sequence[Styled]) -> list[Styled]:
    """Return what shows the address of a link behind its text, where the text is another."""
    text = "".join(one for one, _ in shown[begin:])
    if not target or target in (text, f"mailto:{text}"):
        return []
    return [(one, DIM) for one in f" ({terminal_text(target)})"]


def block_of(line: str) -> tuple[list[Styled], int, Style]:
    """Return (the characters of a line's mark, where its text begins, the style of its text)."""
    if RULE.fullmatch(line):
        width = min(RULE_WIDTH, get_terminal_size().columns)
        return [("─", DIM)] * width, len(line), PLAIN
    found = BLOCK.match(line)
    if not found:
        return [], 0, PLAIN
    space, heading, bullet, number, quote = found.groups()
    mark = "• " if bullet else f"{number} " if number else "▌ " if quote else ""
    shown: list[Styled] = [*((one, PLAIN) for one in space), *((one, DIM) for one in mark)]
    return shown, found.end(), HEADING if heading else PLAIN


class TextLine:
    """A line of prose, written as its words become certain."""

    def __init__(self, write: Write) -> None:
        self.wrap = WordWrap(write)
        self.has_begun = False
        self.taken, self.style = 0, PLAIN

    def advance(self, line: str, is_whole: bool = False) -> None:
        """Write what has become certain of a line, all of it where it is whole."""
        if not self.has_begun:
            may_be_block = MAYBE_BLOCK.fullmatch(line) or FENCE.fullmatch(line)
            if may_be_block and not is_whole:
                return
            mark, self.taken, self.style = block_of(line)
            self.has_begun = True
            self.wrap.begin_line(len(mark))
            self.wrap.push(mark)
        end = len(line) if is_whole else certain_end(line, self.taken)
        if end > self.taken:
            self.wrap.push(inline(line[self.taken : end], self.style))
            self.taken = end
        if is_whole:
            self.wrap.end_word()


class MarkdownStream:
    """Writes Markdown in pieces. Text that a terminal would obey must be spelt out before."""

    def __init__(self, write: Write) -> None:
        self.write = write
        self.reset()

    def reset(self) -> None:
        self.line = ""
        self.text_line = TextLine(self.write)
        self.fence = self.language = ""
        self.rows: list[str] = []
        self.code: list[str] = []

    def push(self, text: str) -> None:
        *lines, self.line = (self.line + text).split("\n")
        for line in lines:
            self.end_line(line, "\n")
        is_blank = not self.line or self.line.isspace()
        if not (is_blank or self.fence or TABLE_ROW.match(self.line)):
            self.end_table()
            self.text_line.advance(self.line)

    def finish(self) -> None:
        """Write what still waits, and begin anew."""
        if self.line:
            self.end_line(self.line, "")
        self.end_table()
        self.reset()

    def end_line(self, line: str, end: str) -> None:
        if self.fence:
            self.end_code_line(line, end)
        elif TABLE_ROW.match(line):
            self.rows.append(line + end)
        else:
            self.end_table()
            self.end_text_line(line, end)

    def end_text_line(self, line: str, end: str) -> None:
        fence = None if self.text_line.has_begun else FENCE.fullmatch(line)
        if fence:
            self.fence, self.code = fence[1], []
            self.language = next(iter(fence[2].split()), "text")
            self.write(rendered(line, DIM) + end)
        else:
            self.text_line.advance(line, is_whole=True)
            self.write(end)
        self.text_line = TextLine(self.write)

    def end_code_line(self, line: str, end: str) -> None:
        if line.strip().startswith(self.fence) and not line.strip().strip(self.fence[0]):
            self.fence = ""
            self.write(rendered(line, DIM) + end)
            return
        self.code = [*self.code[-CODE_WINDOW:], line]
        self.write(escaped(highlighted(self.code, self.language)) + end)

    def end_table(self) -> None:
        rows, self.rows = self.rows, []
        if is_table(rows):
            self.write(table("".join(rows)))
            return
        for row in rows:
            line, end, _ = row.partition("\n")
            self.end_text_line(line, end)


def highlighted(lines: Sequence[str], language: str) -> list[Styled]:
    """Return the styled characters of the last of these lines of code."""
    code, last = "\n".join(lines), lines[-1]
    begin, styles = len(code) - len(last), [PLAIN] * len(last)
    shown = code if len(code) <= MAX_CODE else ""
    text = Syntax("", language, theme=CODE_THEME, tab_size=0).highlight(shown)
    for span in text.spans if text.plain.startswith(code) else ():
        style = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        for at in range(max(span.start, begin), min(span.end, begin + len(last))):
            styles[at - begin] += style
    return list(zip(last, styles, strict=True))


def is_table(rows: Sequence[str]) -> bool:
    """Say whether rows make a table that has no cell beyond its columns."""
    if len(rows) < 2 or not TABLE_HEAD.fullmatch(rows[1]) or sum(map(len, rows)) > MAX_TABLE:
        return False
    return "-" in rows[1] and len({row.count("|") for row in rows}) == 1


def table(source: str) -> str:
    """Return a table drawn as wide as the terminal allows."""
    markdown = Markdown("", hyperlinks=False)
    markdown.parsed = PARSER.parse(source)
    drawn = io.StringIO()
    width = get_terminal_size().columns
    Console(file=drawn, width=width, force_terminal=True, color_system="standard").print(markdown)
    lines = [line.rstrip() for line in drawn.getvalue().splitlines()]
    return "".join(f"{line}\n" for line in lines if not BLANK.fullmatch(line))

"""The documents of the repository: their files, links, headings and blocks of commands."""

import re
import subprocess
from functools import cache
from pathlib import Path

from tools.site.pages import PAGES, content_of

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```$", re.M | re.S)
SPAN = re.compile(r"`[^`\n]+`")


@cache
def documents():
    """Every Markdown file of the repository, those that are not committed yet too."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in sorted(filter(None, listed.split("\0")))]
    return [path for path in paths if path.is_file()]


@cache
def text_of(path):
    """A document's text; of a page of the site that is generated, what it will hold."""
    name = str(path.relative_to(ROOT / "docs")) if path.is_relative_to(ROOT / "docs") else ""
    return content_of(name) if name in PAGES else path.read_text()


def prose(path):
    """A document's text without its blocks of commands and without code in the middle of text."""
    return SPAN.sub("", FENCE.sub("", text_of(path)))


def links(path):
    """The targets of a document's links and pictures."""
    return [first or second for first, second in LINK.findall(prose(path))]


def anchors(path):
    """The names under which a document's headings are reached, as GitHub makes them."""
    titles = HEADING.findall(FENCE.sub("", text_of(path)))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def command_lines(path):
    """The lines of a document's blocks, those that end in a backslash joined with the next."""
    for block in FENCE.findall(text_of(path)):
        yield from block.replace("\\\n", " ").splitlines()

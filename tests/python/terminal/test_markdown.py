"""Markdown on a terminal: styles, any cut of the stream, and no character lost."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.terminal.markdown import MAX_UNCLOSED, MAX_WORD, MarkdownStream
from glm_engine.terminal.wrapping import WordWrap

STYLE = re.compile("\x1b\\[[0-9;]*m")
WIDTH = 80
DOCUMENT = """# A *title*
Some **bold _nested_ text**, `code <b>` and 5 * 3 = 15, snake_case_name, &lt; \\(a_1\\) and
a [link](http://127.0.0.1/a), [http://127.0.0.1/](http://127.0.0.1/), ~~gone~~, [ ] and <br>.

- one
  * two
3. three
> quoted
---
```python
def half(x):
\treturn x / 2
```
| A | B |
|---|---|
| a | **b** |

The end of **what stays open"""
SHOWN = """A title
Some bold nested text, code <b> and 5 * 3 = 15, snake_case_name, &lt; \\(a_1\\) and
a link (http://127.0.0.1/a), http://127.0.0.1/, gone, [ ] and <br>.

• one
  • two
3. three
▌ quoted
────────────────────────────────────────
```python
def half(x):
\treturn x / 2
```
 A  B
 ────
 a  b

The end of **what stays open"""
STYLED = [
    ("**bold** ", "\x1b[1mbold\x1b[0m"),
    ("*slanted* ", "\x1b[3mslanted\x1b[0m"),
    ("~~gone~~ ", "\x1b[9mgone\x1b[0m"),
    ("`code` ", "\x1b[36mcode\x1b[0m"),
    ("## title\n", "\x1b[1mtitle\x1b[0m"),
    ("```python\nreturn x\n", "\x1b[94mreturn\x1b[0m"),
    ("[a](b) ", "\x1b[4ma\x1b[0m\x1b[2m (b)\x1b[0m"),
]
MARKS = st.text(st.sampled_from("ab \n*_`~#->[]()1.\\<&;:"), max_size=60)
LETTERS = re.compile("[ab1]")


@pytest.fixture(autouse=True)
def width(monkeypatch):
    monkeypatch.setenv("COLUMNS", str(WIDTH))


def written(*pieces):
    out = []
    stream = MarkdownStream(out.append)
    for piece in pieces:
        stream.push(piece)
    stream.finish()
    return "".join(out)


def plain(*pieces):
    lines = STYLE.sub("", written(*pieces)).split("\n")
    return "\n".join(line.rstrip() for line in lines)


@pytest.mark.parametrize("size", [1, 5, len(DOCUMENT)])
def test_a_document_in_pieces(monkeypatch, size):
    monkeypatch.setenv("COLUMNS", "100")
    pieces = [DOCUMENT[at : at + size] for at in range(0, len(DOCUMENT), size)]
    assert plain(*pieces) == SHOWN


@pytest.mark.parametrize(("source", "shown"), STYLED)
def test_styles_come_as_soon_as_they_are_certain(source, shown):
    out = []
    MarkdownStream(out.append).push(f"{source}next")
    assert shown in "".join(out)


def test_whole_words_come_before_their_line_ends():
    out = []
    stream = MarkdownStream(out.append)
    stream.push("The capital of Fran")
    assert "".join(out) == "The capital of"
    stream.push("ce is **Par")
    assert "".join(out) == "The capital of France is"
    stream.push("is** now")
    assert STYLE.sub("", "".join(out)) == "The capital of France is Paris"


def test_lines_of_chinese_come_without_spaces():
    out = []
    MarkdownStream(out.append).push("巴黎是**法")
    assert "".join(out) == "巴黎"


def test_lines_wrap_between_words_and_lists_keep_their_indent():
    words = "word " * 30
    lines = plain(f"- {words}").splitlines()
    assert len(lines) == 2
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[0].startswith("• word")
    assert lines[1].startswith("  word")


def test_a_word_wider_than_the_terminal_stays_whole():
    long = "x" * (3 * WIDTH)
    assert plain(f"a {long} b") == f"a\n{long}\nb"


def test_the_width_is_that_of_the_window_when_a_line_begins(monkeypatch):
    out = []
    stream = MarkdownStream(out.append)
    stream.push("word " * 30 + "\n")
    monkeypatch.setenv("COLUMNS", "40")
    stream.push("word " * 30 + "\n")
    assert max(map(len, "".join(out).splitlines()[-3:])) < 40


@given(st.lists(MARKS))
def test_no_letter_is_lost_whatever_the_cut(pieces):
    shown = STYLE.sub("", written(*pieces))
    assert LETTERS.findall(shown) == LETTERS.findall("".join(pieces))


@given(st.lists(st.text(st.characters(exclude_categories=["Cc", "Cs"]))))
def test_only_styles_reach_the_terminal(pieces):
    assert "\x1b" not in STYLE.sub("", written(*pieces))


def test_addresses_and_entities_are_not_decoded_into_what_a_terminal_obeys():
    source = "<http://a/%1b[2J> &#27;[2J &#x202e; [b](http://a/%1b)\n| a |\n|--|\n| <x:%1b> |\n"
    shown = STYLE.sub("", written(source))
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_a_long_line_keeps_its_styles():
    pieces = ["*a* b "] * 2000
    assert plain(*pieces).replace("\n", " ") == "a b " * 1999 + "a b"


@pytest.mark.parametrize("text", ["x" * 2 * MAX_WORD, "`" + "a " * MAX_UNCLOSED])
def test_a_word_or_span_without_end_is_not_held_back_for_ever(text):
    out = []
    stream = MarkdownStream(out.append)
    for one in text:
        stream.push(one)
    stream.push(" b c")
    assert len("".join(out)) > MAX_UNCLOSED


def test_a_span_that_was_given_up_is_written_once():
    source = "`" + "a " * MAX_UNCLOSED + "` end"
    assert plain(*source).replace("\n", " ").count("a") == MAX_UNCLOSED


def test_wide_characters_never_cross_the_edge():
    out = []
    wrap = WordWrap(out.append)
    wrap.push(("中", None) for _ in range(WIDTH))
    wrap.end_word()
    assert [len(line) for line in "".join(out).splitlines()] == [WIDTH // 2, WIDTH // 2]


@pytest.mark.parametrize(
    "source", ["| a | b |\n", "| a |\n|--|\n| b | c |\n", "| a |\n| b |\n", "| a |\n|  |\n"]
)
def test_rows_that_make_no_table_stay_as_they_are(source):
    assert plain(*source) == source


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "source",
    [
        "[a " * 33_000,
        "*a " * 33_000,
        "`a``b```c" * 10_000,
        "|" + "[a " * 33_000 + "|\n|-|\n",
        "|a|\n|" + "-" * 100_000 + "x",
        "```" + "x" * 100_000 + "`",
        "```python\n" + "x" * 100_000 + "\n",
        "- " * 50_000 + "x",
        " " * 100_000 + "x",
        "x\n" * 50_000,
    ],
    ids=lambda source: source[:8],
)
def test_hostile_text_takes_no_longer_than_its_length(source):
    text = plain(source)
    assert text.count("x") + text.count("a") == source.count("x") + source.count("a")

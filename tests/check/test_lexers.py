"""Lexers against sources put together from pieces whose kind is known."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.check.languages import BY_EXTENSION
from tools.check.tokens import Kind, LexingError

PIECES = {
    ".cpp": {
        "comment": ["// it's", '// "open', "/* // */", "/* two\nlines */", "//", "/**/", "/* ' */"],
        "other": [
            'f("// text")',
            "c = '\"'",
            "d = '\\''",
            'r = R"x(/* ) " //)x"',
            "n = 1'000'000",
            "h = 0x1.8p-3",
            "#include <a//b>",
            '#define URL "http://host"',
            "a / b",
            "a / *b",
            'u8"//"',
            '"\\\\"',
        ],
    },
    ".t": {
        "comment": ["-- it's", '-- "open', "--[[ two\nlines ]]", "--[==[ ]] ]==]", "--", "---[["],
        "other": [
            'print("-- text")',
            "a - -1",
            "s = [[ -- ]]",
            "s = [=[ ]] -- ]=]",
            "s = '\\'--'",
            '"\\\\"',
            "a[b[1]]",
        ],
    },
    ".fut": {
        "comment": ["-- it's", '-- "open', "-- | text", "--", "-->"],
        "other": [
            'def t = "-- text"',
            "a - -1",
            "def x' = x''",
            "def q = '\\''",
            "def c = '\"'",
            "def f 't '^u = 1",
            "def d = '-'",
            '"\\\\"',
        ],
    },
    ".py": {
        "comment": ["# it's", '# "open', "#", "#!"],
        "other": [
            'a = "# text"',
            "b = '''x\n# y'''",
            "c = '\\\\' + '#'",
            'd = f"{a!r:#>4}"',
            "e = '\\'#'",
        ],
    },
    ".sh": {
        "comment": ["# it's", '# "open', "#"],
        "other": [
            'echo "# text"',
            "echo '#'",
            'echo "${#a}" ${a#b} $#',
            "echo a#b",
            "cat <<'END'\n# text\nEND",
        ],
    },
    ".nix": {
        "comment": ["# it's", '# "open', "/* two\nlines */"],
        "other": ['a = "# text";', "b = ''\n# text ${c} /* x */\n'';", "c = 1;", 'd = "\\"#";'],
    },
}


def sources(extension):
    kinds = PIECES[extension]
    piece = st.sampled_from([(kind, text) for kind, texts in kinds.items() for text in texts])
    return st.lists(piece, max_size=12)


@pytest.mark.parametrize("extension", PIECES)
@settings(deadline=None)
@given(data=st.data())
def test_comments_are_found_where_they_were_put(extension, data):
    pieces = data.draw(sources(extension))
    source, expected, line = "", [], 1
    for kind, text in pieces:
        if kind == "comment":
            expected.append((line, text))
        source += text + "\n"
        line += text.count("\n") + 1
    tokens = BY_EXTENSION[extension].lex(source)
    found = [(one.line, one.text.rstrip("\n")) for one in tokens if one.kind is Kind.COMMENT]
    assert joined(found) == joined(expected)


def joined(comments):
    """Neighbouring comments may be one token: compare line by line."""
    return [
        (line + index, part)
        for line, text in comments
        for index, part in enumerate(text.split("\n"))
    ]


@pytest.mark.parametrize("extension", [".cpp", ".t", ".fut"])
@given(text=st.text(alphabet="'\"\\/*-[]= \nR()ab1", max_size=40))
@settings(deadline=None, max_examples=300)
def test_scanners_lose_no_character(extension, text):
    try:
        tokens = list(BY_EXTENSION[extension].lex(text))
    except LexingError:
        return
    assert "".join(token.text for token in tokens) == text
    line, column = 1, 1
    for token in tokens:
        assert (token.line, token.column) == (line, column)
        lines = token.text.split("\n")
        line += len(lines) - 1
        column = len(lines[-1]) + (column if len(lines) == 1 else 1)

"""`glm chat` where no terminal is: lines in, answers out."""

import io
import json
import sys

import pytest

from glm_engine import cli
from tests.python.commands.running import CPU
from tests.python.conversation.servers import HEAD, event, serving, stream

FRANCE, JAPAN = "What is the capital of France?", "What is the capital of Japan?"
NOBODY = "http://127.0.0.1:9"
REFUSED = [
    (["--url", "nowhere"], "expected a URL, e.g. http://127.0.0.1:8000, got 'nowhere'"),
    (["--url", NOBODY], f"{NOBODY}: cannot connect: "),
    (["--url", NOBODY, "--max-seq", "64"], "not with --url: --max-seq\n"),
    (["x", "--url", NOBODY], f"{NOBODY}: cannot connect: "),
    (
        ["x", "--url", NOBODY, "--served-model-name", "y"],
        "MODEL is 'x' but --served-model-name is 'y'",
    ),
    (
        ["--timeout", "9", "--served-model-name", "x"],
        "only with --url: --served-model-name, --timeout\n",
    ),
    (["--model", "/nowhere"], "/nowhere: not a folder"),
    (["--tools", "/nowhere"], "/nowhere: cannot be read"),
    (["--url", NOBODY, "--api-key-file", "/nowhere"], "/nowhere: cannot be read"),
    (["--system", ""], "--system: expected a value"),
    (["--temperature", "nan"], "expected a finite number"),
]
LINES = [
    ("/nothing", "/nothing is no command; /help lists them"),
    ("/save", "/save: expected FILE"),
    ("/clear all", "/clear takes nothing after it, found 'all'"),
    ("/set", None),
    ("/set top_p", "/set top_p: expected a value, or default"),
    ("/think maybe", "/think: expected on or off, found 'maybe'"),
    ("/retry", "/retry: there is no answer yet"),
    ('"""open', "standard input ended inside a message of several lines"),
    ("\udcff", "standard input: not UTF-8"),
]


@pytest.fixture
def chat(monkeypatch, capfd):
    """Run `glm chat` on these lines; gives its exit code, its output and its messages."""

    def run(*arguments, lines=()):
        content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        code = cli.main(["chat", *map(str, arguments)])
        return code, *capfd.readouterr()

    return run


def test_answers_of_an_engine(chat, tmp_path):
    path = tmp_path / "talk.json"
    lines = [FRANCE, "", "What is the capital\\", "of Japan?", f"/save {path}", "/bye", FRANCE]
    assert chat(*CPU, "--system", "Be brief.", lines=lines) == (0, "Paris.\nTokyo.\n", "")
    roles = [message["role"] for message in json.loads(path.read_bytes())["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    lines = [f"/load {path}", "/retry"]
    assert chat(*CPU, lines=lines) == (0, "Tokyo.\n", f"glm: 5 messages from {path}\n")


def test_thoughts_of_an_engine(chat):
    options = (*CPU, "--think", "--max-tokens", 4)
    _, shown, note = chat(*options, "--show-thoughts", lines=[FRANCE])
    assert note == "glm: the answer is cut: it reached max_tokens or filled the context\n"
    thought, end, answer = shown.partition("\n</think>\n")
    assert thought.startswith("<think>\n")
    assert end
    assert chat(*options, lines=[FRANCE]) == (0, answer, note)


def test_a_full_context_ends_with_one_line(chat):
    code, output, line = chat(*CPU, "--max-seq", 48, lines=[FRANCE, JAPAN, JAPAN, JAPAN])
    assert code == 2
    assert output.startswith("Paris.\nTokyo.\n")
    assert "which leaves no room in the context of 48; /clear" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize(("arguments", "reason"), REFUSED)
def test_refused_options(chat, arguments, reason):
    code, output, line = chat(*arguments, lines=[FRANCE])
    assert (code, output) == (2, "")
    assert line.startswith("glm: ")
    assert reason in line
    assert line.count("\n") == 1


def test_lines_that_are_no_messages(chat):
    with serving() as (url, bodies):
        for line, reason in LINES:
            code, output, message = chat("--url", url, lines=[line])
            assert code == (2 if reason else 0), line
            assert message.startswith(f"glm: {reason}") if reason else "top_p default" in output
            assert message.count("\n") == bool(reason)
        assert bodies == []


def test_answers_of_a_server(chat):
    answers = [stream({"content": "\x1b[1mone"}), stream({"content": "two"}, reason="length")]
    with serving(*answers) as (url, bodies):
        code, output, note = chat("--url", f"{url}/v1", "--top-k", 3, lines=["a", "/think on", "b"])
    assert (code, output) == (0, "\x1b[1mone\ntwo\n")
    assert note.startswith("glm: the answer is cut")
    assert bodies[0] == {
        "model": "prepared",
        "messages": [{"role": "user", "content": "a"}],
        "stream": True,
        "top_k": 3,
    }
    assert bodies[1]["chat_template_kwargs"] == {"enable_thinking": True}
    assert bodies[1]["messages"][1] == {"role": "assistant", "content": "\x1b[1mone"}


def test_answers_that_hold_no_text(chat):
    answers = [stream({"reasoning": "hm"}), stream()]
    with serving(*answers) as (url, _):
        code, output, notes = chat("--url", url, lines=["a", "b"])
    assert (code, output) == (0, "")
    assert notes == "glm: the answer is a thought alone\nglm: the answer is empty\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the server closed the connection"),
        (b"nonsense\r\n\r\n", "the server sent invalid HTTP"),
        (HEAD + event({"content": "a"}), "cut off: the stream ended without [DONE]"),
        (HEAD + b'data: {"error": {"message": "lost"}}\n\n', "error in the stream: lost"),
    ],
)
def test_answers_that_are_not_whole(chat, answer, reason):
    with serving(answer) as (url, _):
        code, output, line = chat("--url", url, lines=["a", "b"])
    assert code == 1
    assert output == ("a\n" if b"delta" in answer else "")
    assert line.startswith(f"glm: {url}: /v1/chat/completions: ")
    assert reason in line
    assert line.count("\n") == 1


def test_a_server_that_falls_silent_is_given_up(chat):
    with serving(HEAD + event({"content": "a"}), holds=True) as (url, _):
        code, output, line = chat("--url", url, "--timeout", 0.5, lines=["a", "b"])
    assert (code, output) == (1, "a\n")
    assert line == f"glm: {url}: /v1/chat/completions: no answer within 0.5 s\n"

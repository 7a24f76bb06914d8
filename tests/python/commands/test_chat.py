"""`glm chat` where no terminal is: lines in, answers out."""

import io
import json
import re
import sys

import pytest

from glm_engine.cli import command_line
from glm_engine.core.layout import CAPITALS
from tests.python.commands.running import CPU
from tests.python.terminal.servers import END, HEAD, event, refusal, serving, stream

FRANCE, JAPAN = "What is the capital of France?", "What is the capital of Japan?"
FIGURES = re.compile(
    r"glm: \d tokens in \d+\.\d\d s \((?:[\d,]+\.\d tokens/s, )?first token after \d+\.\d\d s\);"
    r" prompt: [\d,]+ tokens, [\d,]+ cached"
)
NOBODY = "http://127.0.0.1:9"
REFUSED = [
    (["--url", "nowhere"], "expected a URL, e.g. http://127.0.0.1:8000, got 'nowhere'"),
    (["--url", NOBODY], f"{NOBODY}: cannot connect (connection refused); is the server running?"),
    (["--url", NOBODY, "--max-seq", "64"], "not allowed with --url: --max-seq\n"),
    (
        ["x", "--url", NOBODY],
        f"{NOBODY}: cannot connect (connection refused); is the server running?",
    ),
    (
        ["x", "--url", NOBODY, "--served-model-name", "y"],
        "MODEL is 'x' but --served-model-name is 'y'",
    ),
    (
        ["--timeout", "9", "--served-model-name", "x"],
        "only allowed with --url: --served-model-name, --timeout\n",
    ),
    (["--model", "/nowhere"], "/nowhere: no such folder"),
    (["--tools", "/nowhere"], "/nowhere: cannot be read"),
    (["--url", NOBODY, "--api-key-file", "/nowhere"], "/nowhere: cannot be read"),
    (["--system", ""], "--system: expected a value"),
    (["--temperature", "nan"], "expected a finite number, got 'nan'"),
]
CONFIRMED = [
    ("/set temperature 0.5", "temperature = 0.5"),
    ("/set top-p 0.5", "top_p = 0.5"),
    ("/set parameter top_k 3", "top_k = 3"),
    ("/set seed default", "seed = default"),
    ("/set think", "thinking is on"),
    ("/set nothink", "thinking is off"),
    ("/think on", "thinking is on"),
    ("/set verbose", "verbose output is on"),
    ("/set quiet", "verbose output is off"),
    ("/system Be brief.", "system message set"),
    ("/set system Be brief.", "system message set"),
    ("/clear", "started a new conversation (the system message stays)"),
    ("/system", "system message removed"),
    ("/clear", "started a new conversation"),
]
LINES = [
    ("/nothing", "/nothing: unknown command; /help lists the commands"),
    ("/save", "/save: expected FILE after the command"),
    ("/clear all", "/clear: unexpected argument 'all'"),
    ("/set", None),
    ("/set top_p", "/set top_p: expected a value, or `default` to reset"),
    ("/think maybe", "/think: expected on or off, got 'maybe'"),
    ("/retry", "/retry: there is no answer to retry yet"),
    ('"""open', "standard input ended inside a multi-line message"),
    ("\udcff", "standard input is not valid UTF-8"),
]


@pytest.fixture
def chat(monkeypatch, capfd):
    """Run `glm chat` on these lines; gives its exit code, its output and its messages."""

    def run(*arguments, lines=()):
        content = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        code = command_line.main(["chat", *map(str, arguments)])
        return code, *capfd.readouterr()

    return run


def test_answers_of_an_engine(chat, tmp_path):
    path = tmp_path / "talk.json"
    lines = [FRANCE, "", "What is the capital\\", "of Japan?", f"/save {path}", "/bye", FRANCE]
    assert chat(*CPU, "--system", "Be brief.", lines=lines) == (
        0,
        "Paris.\nTokyo.\n",
        f"glm: saved 5 messages to {path}\n",
    )
    roles = [message["role"] for message in json.loads(path.read_bytes())["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    lines = [f"/load {path}", "/retry"]
    assert chat(*CPU, lines=lines) == (0, "Tokyo.\n", f"glm: loaded 5 messages from {path}\n")


def test_thoughts_of_an_engine(chat):
    options = (*CPU, "--think", "--max-tokens", 4)
    _, shown, note = chat(*options, "--show-thoughts", lines=[FRANCE])
    assert note == "glm: the answer was cut off: it reached max_tokens or filled the context\n"
    thought, end, answer = shown.partition("\n</think>\n")
    assert thought.startswith("<think>\n")
    assert end
    assert chat(*options, lines=[FRANCE]) == (0, answer, note)


def test_a_full_context_ends_with_one_line(chat):
    code, output, line = chat(*CPU, "--max-seq", 48, lines=[FRANCE, JAPAN, JAPAN, JAPAN])
    assert code == 2
    assert output.startswith("Paris.\nTokyo.\n")
    assert (
        "the context length is 48, so no room is left for an answer; start over with /clear" in line
    )
    assert line.count("\n") == 1


def test_an_answer_longer_than_the_context_is_refused(chat):
    limits = ("--max-seq", 64, "--max-tokens")
    code, output, line = chat(*CPU, *limits, 500, FRANCE)
    assert (code, output, line.count("\n")) == (2, "", 1)
    assert line.startswith("glm: the context length is 64 tokens; this conversation needs 5")
    assert "in the prompt, 500 to generate): lower --max-tokens" in line
    assert chat(*CPU, *limits, 16, FRANCE) == (0, "Paris.\n", "")


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
            assert message.startswith(f"glm: {reason}") if reason else "top_p = default" in output
            assert message.count("\n") == bool(reason)
        assert bodies == []


def test_answers_of_a_server(chat):
    answers = [stream({"content": "\x1b[1mone"}), stream({"content": "two"}, reason="length")]
    with serving(*answers) as (url, bodies):
        code, output, note = chat("--url", f"{url}/v1", "--top-k", 3, lines=["a", "/think on", "b"])
    assert (code, output) == (0, "\x1b[1mone\ntwo\n")
    assert note.endswith(
        "glm: the answer was cut off: it reached max_tokens or filled the context\n"
    )
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
    assert notes == (
        "glm: the model produced only thinking and no answer\nglm: the model gave an empty answer\n"
    )


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
    assert line == f"glm: {url}: /v1/chat/completions: no response within 0.5 s\n"


def test_commands_say_what_they_did(chat):
    with serving() as (url, _):
        lines = [line for line, _ in CONFIRMED]
        code, output, notes = chat("--url", url, lines=lines)
    assert (code, output) == (0, "")
    assert notes == "".join(f"glm: {said}\n" for _, said in CONFIRMED)


def test_help_lists_each_command_and_its_other_names(chat):
    with serving() as (url, _):
        code, output, _ = chat("--url", url, lines=["/?"])
    assert code == 0
    for usage in ("/help, /? ", "/set [NAME VALUE] ", "/verbose on|off ", "/bye, /exit, /quit "):
        assert f"\n{usage}" in f"\n{output}"


def test_one_question_to_an_engine(chat):
    for words in ([CAPITALS, FRANCE], ["capitals", FRANCE], [FRANCE]):
        assert chat(*CPU, *words) == (0, "Paris.\n", "")
    assert chat(*CPU, CAPITALS, "of France?", lines=["What is the capital"])[1] == "Paris.\n"
    code, _, line = chat(*CPU, CAPITALS, "/help \udcff")
    assert code == 2
    assert "not valid Unicode" in line


def test_one_question_to_a_server(chat):
    answers = [stream({"content": text}) for text in ("one", "two", "three")]
    with serving(*answers) as (url, bodies):
        assert chat("--url", url, "/etc/hosts is what?") == (0, "one\n", "")
        assert chat("--url", url, "prepared", "Sum it up.", lines=["a", "b"])[:2] == (0, "two\n")
        assert chat("--url", url, "prepared", "c") == (0, "three\n", "")
    asked = [body["messages"][0]["content"] for body in bodies]
    assert asked == ["/etc/hosts is what?", "a\nb\n\nSum it up.", "c"]


def test_one_question_that_fails_fails_the_command(chat):
    with serving(refusal(500, "broken")) as (url, _):
        code, output, line = chat("--url", url, "prepared", "a")
    assert (code, output) == (1, "")
    assert line == f"glm: {url}: /v1/chat/completions: status 500: broken\n"
    code, output, line = chat("--url", NOBODY, "prepared", "a", lines=["\udcff"])
    assert code == 2
    assert line.startswith("glm: standard input is not valid UTF-8: ")


def test_figures_of_an_engine(chat):
    code, output, notes = chat(*CPU, "--verbose", lines=[FRANCE, "/verbose off", FRANCE])
    assert (code, output) == (0, "Paris.\nParis.\n")
    figures, switched = notes.splitlines()
    assert FIGURES.fullmatch(figures)
    assert switched == "glm: verbose output is off"


def test_figures_of_a_server(chat):
    usage = {"prompt_tokens": 1200, "completion_tokens": 7}
    usage["prompt_tokens_details"] = {"cached_tokens": 1024}
    counts = b"data: %s\n\n" % json.dumps({"choices": [], "usage": usage}).encode()
    begin, end = HEAD + event({"content": "a"}), event({"content": "b"}, "stop")
    with serving(begin + end + counts + END, begin + END) as (url, bodies):
        _, output, notes = chat("--url", url, "--verbose", lines=["a", "b"])
    assert output == "ab\na\n"
    counted, uncounted = notes.splitlines()
    assert FIGURES.fullmatch(counted)
    assert "prompt: 1,200 tokens, 1,024 cached" in counted
    assert uncounted.endswith(" s in total; the server reported no token counts")
    assert bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("option", ["--api-key-file", "--key-file"])
def test_the_key_of_a_server(chat, tmp_path, option):
    keys = tmp_path / "key"
    with serving(stream({"content": "one"})) as (url, _):
        keys.write_text("two words\n")
        line = chat("--url", url, option, keys, lines=["a"])[2]
        assert line == f"glm: {keys}: expected one API key, got 2 words\n"
        keys.write_text("\n")
        line = chat("--url", url, option, keys, lines=["a"])[2]
        assert line == f"glm: {keys}: expected one API key, but the file is empty\n"
        keys.write_text("sha256:ab\n")
        assert "expected the API key itself" in chat("--url", url, option, keys, lines=["a"])[2]
        keys.write_text("secret\n")
        assert chat("--url", url, option, keys, lines=["a"]) == (0, "one\n", "")

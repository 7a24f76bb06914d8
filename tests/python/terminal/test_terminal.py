"""`glm chat` in a pseudo-terminal: on an engine, on a server, and where things go wrong."""

import json
import os
import re
import signal
import sys

import pytest

from glm_engine.cli import command_line
from tests.python.commands.running import CPU
from tests.python.terminal.models import OPTIONS, link_talkative_model
from tests.python.terminal.servers import HEAD, event, refusal, serving, stream
from tests.python.terminal.terminal import ALT_ENTER, CTRL_C, CTRL_D, ENTER, TAB, UP, Terminal
from tests.server.serving import ServerProcess

FRANCE, JAPAN = "What is the capital of France?", "What is the capital of Japan?"
PROMPT = "\n>>>"
SLOW_LOAD = """
import sys, time
from glm_engine.cli.command_line import main
from glm_engine.core import loading
def slow(options):
    print("slow", flush=True)
    time.sleep(600)
loading.Engine = slow
sys.exit(main(["chat"]))
"""
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\rP\u202eP"
SPELT = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\rP\\u202eP"
OBEYED = re.compile("\x1b[]\\[](?:0;owned|2J)|\x9b|\u202e|\x07")
STYLE = re.compile("\x1b\\[[0-9;]*m")
CALLED = {"index": 0, "function": {"name": HOSTILE, "arguments": '{"of": "France"}'}}


@pytest.fixture
def terminal(tmp_path):
    """Start a conversation in a terminal of its own, with its own history, and end it."""
    started = []

    def start(*arguments, **environment):
        state = {"XDG_STATE_HOME": str(tmp_path / "state"), "NO_PROXY": "*"}
        started.append(Terminal(*arguments, **{**state, **environment}))
        return started[-1]

    yield start
    for one in started:
        one.close()


def saved(terminal, path):
    """Let a conversation be saved, and return its messages."""
    terminal.say(f"/save {path}")
    return json.loads(path.read_bytes())["messages"]


def test_a_conversation_on_an_engine(terminal, tmp_path):
    chat = terminal(*CPU)
    assert "capitals on CPU" in chat.wait_for(PROMPT)
    assert "\nglm: the line is not valid UTF-8" in chat.say("\udcff")
    assert "\nParis." in chat.say(FRANCE)
    assert "\nTokyo." in chat.say(f"What is the capital{ALT_ENTER}of Japan?")
    asked = [message["content"] for message in saved(chat, tmp_path / "two.json")]
    assert asked == [FRANCE, "Paris.", "What is the capital\nof Japan?", "Tokyo."]
    assert "\nTokyo." in chat.say("/retry")
    chat.say("/think on")
    begin = len(chat.raw)
    chat.say(FRANCE)
    assert b"\x1b[2m" in chat.raw[begin:]
    chat.say("/think off")
    assert "glm: /set hotness: unknown setting; expected one of temperature, " in chat.say(
        "/set hotness 3"
    )
    chat.press("not this" + CTRL_C)
    chat.say(f"/cl{TAB}")
    chat.press(4 * UP)
    assert "\nParis." in chat.say("")
    assert saved(chat, tmp_path / "one.json") == [
        {"role": "user", "content": FRANCE},
        {"role": "assistant", "content": "Paris."},
    ]
    chat.press(CTRL_D)
    assert chat.end() == 0
    lines = (tmp_path / "state" / "glm" / "chat_history").read_text()
    assert f"+{FRANCE}\n" in lines
    assert "+/clear\n" in lines
    assert "not this" not in lines


def test_interrupts_and_a_full_context(terminal, tmp_path):
    model = link_talkative_model(tmp_path)
    chat = terminal(*CPU, "--model", model, *OPTIONS, "--no-history")
    chat.wait_for(PROMPT)
    chat.press(FRANCE + ENTER)
    chat.wait_for("\nParis.")
    chat.press(CTRL_C)
    assert chat.wait_for(PROMPT).endswith("glm: stopped")
    kept = saved(chat, tmp_path / "stopped.json")
    assert kept[0] == {"role": "user", "content": FRANCE}
    assert kept[1]["content"].startswith("Paris.")
    chat.say("/set max_tokens 2")
    assert "\nTokyo\nglm: the answer was cut off" in chat.say(JAPAN)
    long = {"role": "user", "content": "word " * 70_000}
    (tmp_path / "long.json").write_text(json.dumps({"messages": [long]}))
    chat.say(f"/load {tmp_path / 'long.json'}")
    line = chat.say(JAPAN)
    assert "the context length is 65536, so no room is left for an answer" in line
    assert line.count("glm: ") == 1
    assert saved(chat, tmp_path / "long-again.json") == [long]
    chat.press(CTRL_C)
    chat.wait_for("press Ctrl-C again to leave")
    chat.wait_for(PROMPT)
    chat.press(CTRL_C)
    assert chat.end() == 130
    assert chat.text.endswith("glm: interrupted\n")
    assert not (tmp_path / "state").exists()


def test_ctrl_c_while_the_engine_loads(terminal):
    chat = terminal(program=(sys.executable, "-c", SLOW_LOAD))
    chat.wait_for("slow\n")
    chat.press(CTRL_C)
    assert chat.end() == 130
    assert chat.text.endswith("glm: interrupted\n")


def test_a_conversation_on_a_server_that_dies(terminal, tmp_path, capfd):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    model = link_talkative_model(tmp_path)
    server = ServerProcess(tmp_path, "--model", model, *OPTIONS, "--api-key-file", keys)
    try:
        reason = "the server requires an API key: set GLM_API_KEY or use --api-key-file\n"
        assert command_line.main(["chat", "--url", server.url]) == 2
        assert reason in capfd.readouterr().err
        chat = terminal("--url", server.url, "--api-key-file", keys)
        assert f"capitals at {server.url}" in chat.wait_for(PROMPT)
        chat.say("/set max_tokens 2")
        answer = chat.say(FRANCE)
        assert "\nPar\nglm: the answer was cut off" in answer
        chat.say("/set max_tokens default")
        chat.press(JAPAN + ENTER)
        chat.wait_for("\nTokyo.")
        chat.press(CTRL_C)
        assert chat.wait_for(PROMPT).endswith("glm: stopped")
        server.wait_until_idle()
        chat.press(FRANCE + ENTER)
        chat.wait_for("\nParis.")
        server.send_signal(signal.SIGKILL)
        assert f"\nglm: {server.url}: /v1/chat/completions: " in chat.wait_for(PROMPT)
        server.wait()
        reason = "cannot connect (connection refused); is the server running?"
        assert f"\nglm: {server.url}: {reason}" in chat.say("/retry")
        roles = [message["role"] for message in saved(chat, tmp_path / "talk.json")]
        assert roles == ["user", "assistant"] * 3
        chat.press("/bye" + ENTER)
        assert chat.end() == 0
    finally:
        server.stop()


def test_what_a_server_says_is_never_obeyed_and_its_calls_get_results(terminal, tmp_path):
    tool = {"type": "function", "function": {"name": "capital"}}
    (tmp_path / "tools.json").write_text(json.dumps([tool]))
    answers = [
        refusal(500, HOSTILE),
        stream({"reasoning_content": HOSTILE}, {"content": HOSTILE}),
        stream({"tool_calls": [CALLED]}),
        stream({"content": "It is Paris."}),
    ]
    with serving(*answers) as (url, bodies):
        chat = terminal("--url", url, "--tools", tmp_path / "tools.json", "--no-think")
        chat.wait_for(PROMPT)
        begin = len(chat.raw)
        assert "status 500: \\x1b]0;owned" in chat.say("a")
        assert chat.say("/retry").count(SPELT) == 2
        assert "every tool call already has a result" in chat.say("/result Paris")
        assert f'\n[tool call] {SPELT}({{"of": "France"}})' in chat.say(FRANCE)
        assert "\nIt is Paris." in chat.say("/result Paris")
        assert not OBEYED.search(chat.raw[begin:].decode())
    assert bodies[0]["tools"] == [tool]
    assert bodies[0]["chat_template_kwargs"] == {"enable_thinking": False}
    *_, calling, result = bodies[-1]["messages"]
    assert calling["tool_calls"][0]["function"] == CALLED["function"]
    called = calling["tool_calls"][0]["id"]
    assert result == {"role": "tool", "tool_call_id": called, "content": "Paris"}


def test_markdown_comes_while_it_streams_and_nothing_is_drawn_again(terminal):
    beginning = "# Capitals\nOf **France**: `Paris`, and of Jap"
    with serving(HEAD + event({"content": beginning}), holds=True) as (url, _):
        chat = terminal("--url", url, "prepared", FRANCE)
        chat.wait_for("Capitals\nOf France: Paris, and of")
        assert b"\x1b[1mCapitals\x1b[0m" in chat.raw
        assert b"\x1b[1mFrance\x1b[0m: \x1b[36mParis\x1b[0m" in chat.raw
        os.kill(chat.process.pid, signal.SIGWINCH)
        chat.press(CTRL_C)
        assert chat.end() == 130
    assert "\x1b" not in STYLE.sub("", chat.raw.decode())


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--no-markdown"], {}), ([], {"NO_COLOR": "1"})]
)
def test_markdown_as_it_is(terminal, arguments, environment):
    text = "# Capitals\nOf **France**: `Paris`"
    with serving(stream({"content": text})) as (url, _):
        chat = terminal("--url", url, *arguments, "prepared", FRANCE, **environment)
        assert chat.end() == 0
    assert chat.raw.decode().replace("\r", "") == f"{text}\n"


def test_figures_and_commands_in_a_terminal(terminal):
    with serving(stream({"reasoning_content": "hm"}, {"content": "- **one**"})) as (url, _):
        chat = terminal("--url", url, "--verbose")
        chat.wait_for(PROMPT)
        assert "\nglm: temperature = 0.7" in chat.say("/set temperature 0.7")
        assert "\ntemperature = 0.7" in chat.say("/set")
        assert "/verbose on|off " in chat.say("/help")
        begin = len(chat.raw)
        answer = chat.say(FRANCE)
        assert "\nhm\n\n• one\nglm: " in answer
        assert "the server reported no token counts" in answer
        assert b"\x1b[2mhm\x1b[0m" in chat.raw[begin:]
        chat.press("/exit" + ENTER)
        assert chat.end() == 0

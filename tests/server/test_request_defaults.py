"""Defaults that the command line sets for requests of every interface; a request's field wins."""

import json

import pytest

from glm_engine.commands.serve_options import default_template_variables
from glm_engine.core.errors import BadInputError
from glm_engine.server.generation_config import (
    generation_config_path,
    read_generation_config,
    read_overrides,
    sampling_defaults,
)
from glm_engine.server.openai.chat_completions import ChatRequest
from glm_engine.server.openai.chat_messages import template_variables
from tests.python.commands.running import CPU, glm
from tests.server.serving import QUESTION
from tests.server.test_generation_defaults import model_with

WORDS = {"true": "one two three four five", "false": "one", "unset": "one two three"}
TEMPLATE = (
    "{% if enable_thinking is not defined %}"
    + WORDS["unset"]
    + "{% elif enable_thinking %}"
    + WORDS["true"]
    + "{% else %}"
    + WORDS["false"]
    + "{% endif %}"
)
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
TURNS = [{"role": "user", "content": QUESTION}]
BODIES = {
    "/v1/completions": {"prompt": QUESTION, "max_tokens": 8, "ignore_eos": True},
    CHAT: {"messages": TURNS, "max_tokens": 8, "ignore_eos": True},
    RESPONSES: {"input": QUESTION, "max_output_tokens": 16, "ignore_eos": True},
    MESSAGES: {"messages": TURNS, "max_tokens": 8},
}
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
NO_THINKING = {"thinking": {"type": "disabled"}}


def asked(server, path, **fields):
    answer = server.http.post(path, json={**BODIES[path], **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def said(server, path, **fields):
    """What an answer says, without its ids."""
    found = asked(server, path, **fields)
    told = next(found[name] for name in ("choices", "content", "output") if name in found)
    return json.dumps(
        [
            {name: value for name, value in one.items() if name not in ("id", "status")}
            for one in told
        ]
    )


def num_prompt_tokens(server, path, **fields):
    usage = asked(server, path, **fields)["usage"]
    return usage.get("prompt_tokens", usage.get("input_tokens"))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "mine.jinja"
    path.write_text(TEMPLATE)
    return path


@pytest.fixture
def num_tokens(server):
    """The number of tokens of each text of the template."""
    return {
        name: server.http.post("/tokenize", json={"prompt": text}).json()["count"]
        for name, text in WORDS.items()
    }


@pytest.mark.parametrize("path", BODIES)
def test_sampling_defaults_and_a_requests_own(start_server, path) -> None:
    values = '{"temperature": 2, "top_k": 1}'
    server = start_server("--override-generation-config", values)
    default = {said(server, path) for _ in range(3)}
    assert len(default) == 1
    assert default == {said(server, path, temperature=0)}
    assert len({said(server, path, top_k=2000) for _ in range(6)}) > 1


def test_responses_state_the_defaults(start_server) -> None:
    server = start_server("--override-generation-config", '{"temperature": 0.25, "top_p": 0.5}')
    found = asked(server, RESPONSES)
    assert (found["temperature"], found["top_p"]) == (0.25, 0.5)
    assert asked(server, RESPONSES, temperature=0.5)["temperature"] == 0.5


@pytest.mark.parametrize(
    ("options", "default"),
    [
        ((), "unset"),
        (("--no-think",), "false"),
        (("--think",), "true"),
        (("--reasoning-budget", "0"), "false"),
        (("--reasoning-budget", "-1"), "true"),
        (("--default-chat-template-kwargs", '{"enable_thinking": false}'), "false"),
    ],
)
def test_thinking_by_default(start_server, template, num_tokens, options, default) -> None:
    """Anthropic's clients do not expect thoughts that they did not ask for."""
    server = start_server("--chat-template", template, *options)
    for path in (CHAT, RESPONSES, MESSAGES):
        expected = "false" if (path, default) == (MESSAGES, "unset") else default
        assert num_prompt_tokens(server, path) == num_tokens[expected], path
        assert num_prompt_tokens(server, path, **THINKING) == num_tokens["true"], path
        assert num_prompt_tokens(server, path, **NO_THINKING) == num_tokens["false"], path
    counted = server.http.post(f"{MESSAGES}/count_tokens", json={"messages": TURNS}).json()
    expected = "false" if default == "unset" else default
    assert counted["input_tokens"] == num_tokens[expected]
    rendered = server.http.post("/tokenize", json={"messages": TURNS}).json()
    assert rendered["count"] == num_tokens[default]


def test_a_message_can_be_continued_where_thinking_is_the_default(start_server) -> None:
    server = start_server("--think")
    turns = [*TURNS, {"role": "assistant", "content": "The"}]
    assert asked(server, MESSAGES, messages=turns)["content"][0]["type"] == "text"


def test_a_requests_variables_win() -> None:
    defaults = {"enable_thinking": False, "a": 1, "reasoning_effort": "low"}

    def variables(**fields):
        return template_variables(ChatRequest(messages=TURNS, **fields), defaults)

    assert variables() == defaults
    assert variables(chat_template_kwargs={"a": 2}) == {**defaults, "a": 2}
    kwargs = {"enable_thinking": True}
    assert variables(chat_template_kwargs=kwargs)["enable_thinking"] is True
    assert variables(reasoning_effort="none") == {**defaults, "reasoning_effort": "none"}
    assert variables(reasoning_effort="high") == {"a": 1, "reasoning_effort": "high"}


def test_options_of_one_meaning_may_agree_and_not_contradict() -> None:
    assert default_template_variables({}, None, None) == {}
    assert default_template_variables({"a": 1}, False, "0") == {"a": 1, "enable_thinking": False}
    for given in (({}, True, "0"), ({"enable_thinking": [1]}, False, None)):
        with pytest.raises(BadInputError, match="conflict: use only one"):
            default_template_variables(*given)
    with pytest.raises(BadInputError, match="cannot set messages"):
        default_template_variables({"messages": []}, None, None)


def test_the_sources_of_sampling_defaults(tmp_path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text('{"do_sample": false, "top_p": 0.5}')
    found = read_generation_config(generation_config_path(tmp_path, "auto"))
    assert sampling_defaults(found)["temperature"] == 0
    assert sampling_defaults(found, {"temperature": 0.7})["temperature"] == 0.7
    assert sampling_defaults(found, {"do_sample": True})["temperature"] == 1
    for name in ("none", "vllm"):
        none = read_generation_config(generation_config_path(tmp_path, name))
        assert sampling_defaults(none)["top_p"] == 1
    other = read_generation_config(generation_config_path(tmp_path / "no", str(tmp_path)))
    assert sampling_defaults(other)["top_p"] == 0.5
    with pytest.raises(BadInputError, match=r"nowhere/generation_config\.json: no such file"):
        generation_config_path(tmp_path, "nowhere")


@pytest.mark.parametrize("field", ["temperature", "do_sample", "top_k"])
def test_overrides_of_a_wrong_type(field) -> None:
    with pytest.raises(BadInputError, match=f"--override-generation-config: {field}: .*known"):
        read_overrides({field: "x"})


def test_a_config_of_another_folder_and_none(start_server, tmp_path) -> None:
    model = model_with(tmp_path / "model", temperature=0.25)
    for source, expected in (("auto", 0.25), ("none", 1)):
        server = start_server("--model", model, "--generation-config", source)
        assert asked(server, RESPONSES)["temperature"] == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--chat-template", "nowhere.jinja"), "nowhere.jinja: cannot be read: No such file"),
        (("--override-generation-config", "{"), 'expected a JSON object, e.g. \'{"temperature"'),
        (("--override-generation-config", "[1]"), "expected a JSON object, e.g."),
        (("--override-generation-config", '{"temperature": 3}'), "less than or equal to 2"),
        (("--override-generation-config", '{"max_new_tokens": 3}'), "known fields: do_sample, m"),
        (("--generation-config", "nowhere"), "generation_config.json: no such file"),
        (("--think", "--reasoning-budget", "0"), "conflict: use only one"),
        (("--reasoning-budget", "5"), "'5' is not one of"),
        (("--default-chat-template-kwargs", '{"tools": []}'), "cannot set tools"),
        (("--api-key-file", "nowhere"), "nowhere: cannot read the API key file: No such file"),
        (("--api-key", "sha256:12"), "--api-key: expected 64 hexadecimal digits"),
        (("--host", "no.such.invalid"), "cannot listen on no.such.invalid:0: "),
    ],
)
def test_what_cannot_be_is_one_clear_error(options, text) -> None:
    result = glm("serve", *CPU, "--port", 0, *options)
    assert result.returncode == 2
    assert text in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_a_template_that_does_not_compile(tmp_path) -> None:
    path = tmp_path / "bad.jinja"
    path.write_text("{% if %}")
    result = glm("serve", *CPU, "--port", 0, "--chat-template-file", path)
    assert result.returncode == 2
    assert f"{path}: " in result.stderr
    assert len(result.stderr.splitlines()) == 1

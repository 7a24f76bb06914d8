"""A thought is closed at its budget, by the template's own tag; the answer comes after it."""

import pytest

from glm_engine.cli.options import CAPITALS
from tests.scripted import END, ids_of, write_scripted_model
from tests.server.serving import ServerProcess
from tests.server.test_stop_texts import (
    FINISHED,
    INTERFACES,
    MESSAGES,
    MODEL_NAME,
    ask_chat,
    ask_messages,
    ask_responses,
)

WORDS = [" The", " capital", " is", " of", " a", " country", ",", " and"]
THOUGHT, ANSWER = "".join(WORDS).strip(), "Paris"
NUM_THOUGHT = len(WORDS)
BIG = 10_000


def begun(count):
    """The thought's first tokens as text."""
    return "".join(WORDS[:count]).strip()


def started(tmp_path_factory, prompt_end, *script):
    """A server whose prompts end as said, and whose model goes on with the script from there."""
    after_tag = ids_of("</think>", ANSWER, END)
    folder = tmp_path_factory.mktemp("model")
    write_scripted_model(folder, ids_of(*script), after_tag)
    template = folder / "chat_template.jinja"
    template.unlink()
    text = (CAPITALS / template.name).read_text()
    opening = "{{ '<think>' if enable_thinking else '</think>' }}"
    assert opening in text
    template.write_text(text.replace(opening, prompt_end or opening))
    options = ("--model", folder, "--served-model-name", MODEL_NAME)
    return ServerProcess(tmp_path_factory.mktemp("serve"), *options)


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    """Prompts leave the thought open, as GLM-4.7's do."""
    running = started(tmp_path_factory, None, "<think>", *WORDS, "</think>")
    yield running.http
    assert running.stop() == 0, running.log()


@pytest.fixture(scope="module")
def opening_http(tmp_path_factory):
    """The model opens the thought itself, on a line of its own, as GLM-4.5 does."""
    running = started(tmp_path_factory, "", "<|assistant|>", "\n", "<think>", *WORDS, "</think>")
    yield running.http
    assert running.stop() == 0, running.log()


def budget_fields(ask, budget):
    """Return each way in which an interface is told a budget."""
    thinking = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    if ask is ask_messages:
        return [thinking]
    return [thinking, {"thinking_budget": budget}, {"thinking_token_budget": budget}]


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("ask", INTERFACES)
@pytest.mark.parametrize("budget", [1, 3, NUM_THOUGHT - 1, NUM_THOUGHT, NUM_THOUGHT + 1, BIG])
def test_a_budget_is_kept(budget, ask, is_streaming, http, opening_http) -> None:
    count = min(budget, NUM_THOUGHT)
    for fields in budget_fields(ask, budget):
        for server in (http, opening_http):
            found = ask(server, [], is_streaming, **fields)
            assert found == (begun(count), ANSWER, FINISHED[ask][0])


@pytest.mark.parametrize("ask", [ask_chat, ask_responses])
def test_a_budget_of_nothing_closes_the_thought_at_once(ask, http, opening_http) -> None:
    for server in (http, opening_http):
        found = ask(server, [], False, thinking_budget=0)
        assert found == ("", ANSWER, FINISHED[ask][0])


def usage_of(http, **fields):
    body = {"messages": MESSAGES, "chat_template_kwargs": {"enable_thinking": True}, **fields}
    return http.post("/v1/chat/completions", json=body).json()["usage"]["completion_tokens"]


def test_the_closing_token_is_counted(http) -> None:
    """Of the answer there are its tokens and the end."""
    rest = len(ids_of(ANSWER)) + 1
    for budget in (0, 3, NUM_THOUGHT, BIG):
        assert usage_of(http, thinking_budget=budget) == min(budget, NUM_THOUGHT) + 1 + rest
    body = {"input": "x", "thinking": {"type": "enabled"}, "thinking_budget": 3}
    details = http.post("/v1/responses", json=body).json()["usage"]["output_tokens_details"]
    assert details == {"reasoning_tokens": 3}


@pytest.mark.parametrize("ask", INTERFACES)
def test_stop_texts_count_behind_it(ask, http) -> None:
    for fields in budget_fields(ask, 3):
        found = ask(http, ["capital", "ris"], True, **fields)
        assert found == (begun(3), "Pa", FINISHED[ask][1])


def test_the_least_budget_counts_and_none_is_none(http) -> None:
    thinking = {"type": "enabled", "budget_tokens": 5}
    found = ask_chat(http, [], False, thinking=thinking, thinking_budget=2, reasoning_effort="low")
    assert found[0] == begun(2)
    for none in (-1, None):
        assert ask_chat(http, [], False, thinking_budget=none)[0] == THOUGHT
        assert ask_chat(http, [], False, thinking=thinking, thinking_budget=none)[0] == begun(5)


def test_a_budget_holds_before_a_grammar(http) -> None:
    fields = {"thinking_budget": 2, "guided_choice": ["Paris", "Rome"]}
    assert ask_chat(http, [], False, **fields) == (begun(2), ANSWER, "stop")


def test_min_tokens_and_choices_of_their_own(http) -> None:
    body = {"messages": MESSAGES, "n": 3, "thinking_budget": 4, "min_tokens": 6}
    body["chat_template_kwargs"] = {"enable_thinking": True}
    choices = http.post("/v1/chat/completions", json=body).json()["choices"]
    told = [(one["message"]["reasoning_content"], one["message"]["content"]) for one in choices]
    assert told == [(begun(4), ANSWER)] * 3


def test_wrong_budgets_are_refused_by_name(http) -> None:
    def refused(**fields):
        answer = http.post("/v1/chat/completions", json={"messages": MESSAGES, **fields})
        assert answer.status_code == 400
        return answer.json()["error"]["param"]

    assert refused(thinking_budget=-2) == "thinking_budget"
    assert refused(thinking_token_budget=1.5) == "thinking_token_budget"
    thinking = {"type": "enabled", "budget_tokens": -1}
    assert refused(thinking=thinking) == "thinking.budget_tokens"
    assert refused(thinking_budget=3, allowed_token_ids=[5]) == "allowed_token_ids"


NUM_LONG = 1500


@pytest.fixture(scope="module")
def long_http(tmp_path_factory):
    """The model thinks longer than two of the efforts allow."""
    taken = set(ids_of("</think>", ANSWER, END, "<think>"))
    thought = [one for one in range(300, 2000) if one not in taken][:NUM_LONG]
    folder = tmp_path_factory.mktemp("model")
    answer = ids_of("</think>", ANSWER, END)
    write_scripted_model(folder, [*ids_of("<think>"), *thought, answer[0]], answer)
    running = ServerProcess(tmp_path_factory.mktemp("serve"), "--model", folder)
    yield running.http
    assert running.stop() == 0, running.log()


@pytest.mark.parametrize(
    ("effort", "most"), [("minimal", 512), ("low", 1024), ("medium", BIG), ("high", BIG)]
)
def test_efforts_stand_for_budgets(effort, most, long_http) -> None:
    rest = len(ids_of("</think>", ANSWER, END))
    wanted = min(most, NUM_LONG)
    assert usage_of(long_http, reasoning_effort=effort) == wanted + rest
    assert usage_of(long_http, reasoning_effort=effort, thinking_budget=7) == 7 + rest
    thinking = {"type": "enabled"}
    body = {"input": "x", "thinking": thinking, "reasoning": {"effort": effort}}
    usage = long_http.post("/v1/responses", json=body).json()["usage"]
    assert usage["output_tokens"] == wanted + rest

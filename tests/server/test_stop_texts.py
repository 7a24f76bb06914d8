"""Stop texts count in the answer and not in the thought before it, in every interface."""

import json

import pytest

from tests.scripted import END, ids_of, write_scripted_model
from tests.server.serving import ServerProcess

STOP = "Question:"
THOUGHT, ANSWER = "Question: is it? Yes.", "Paris"
THINKS = {"chat_template_kwargs": {"enable_thinking": True}}
MESSAGES = [{"role": "user", "content": "x"}]


def scripted(*texts):
    """The ids from the open thought of the prompt on."""
    return ids_of("<think>", *texts)


def collected(answer):
    """Return the data of each event of a stream."""
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def ask_chat(http, stop, is_streaming, **more):
    body = {"messages": MESSAGES, "stop": stop, "stream": is_streaming, **THINKS, **more}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not is_streaming:
        [choice] = answer.json()["choices"]
        message = choice["message"]
        thought, text = message.get("reasoning_content"), message["content"]
        return thought or "", text or "", choice["finish_reason"]
    choices = [part["choices"][0] for part in collected(answer)]
    text = [one["delta"].get("content") or "" for one in choices]
    thought = [one["delta"].get("reasoning_content") or "" for one in choices]
    return "".join(thought), "".join(text), choices[-1]["finish_reason"]


def ask_messages(http, stop, is_streaming, **more):
    body = {
        "model": MODEL_NAME,
        "max_tokens": 99,
        "messages": MESSAGES,
        "stop_sequences": stop,
        "stream": is_streaming,
        "thinking": {"type": "enabled", "budget_tokens": 4096},
        **more,
    }
    answer = http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    if not is_streaming:
        made = answer.json()
        blocks = {one["type"]: one for one in made["content"]}
        thought = blocks.get("thinking", {}).get("thinking", "")
        text = blocks.get("text", {}).get("text", "")
        return thought, text, made["stop_reason"]
    parts = collected(answer)
    deltas = [one["delta"] for one in parts if one["type"] == "content_block_delta"]
    thought = "".join(one.get("thinking", "") for one in deltas)
    text = "".join(one.get("text", "") for one in deltas)
    [reason] = [one["delta"]["stop_reason"] for one in parts if one["type"] == "message_delta"]
    return thought, text, reason


def ask_responses(http, stop, is_streaming, **more):
    body = {"input": "x", "stop": stop, "stream": is_streaming, **THINKS, **more}
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    made = collected(answer)[-1]["response"] if is_streaming else answer.json()
    items = {one["type"]: one["content"][0]["text"] for one in made["output"] if one["content"]}
    return items.get("reasoning", ""), items.get("message", ""), made["status"]


MODEL_NAME = "scripted"
INTERFACES = [ask_chat, ask_messages, ask_responses]
FINISHED = {
    ask_chat: ("stop", "stop"),
    ask_messages: ("end_turn", "stop_sequence"),
    ask_responses: ("completed", "completed"),
}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Start a server whose model says these texts, each of them once for the module."""
    running = {}

    def started(*texts):
        if texts not in running:
            folder = write_scripted_model(tmp_path_factory.mktemp("model"), scripted(*texts))
            options = ("--model", folder, "--served-model-name", MODEL_NAME)
            running[texts] = ServerProcess(tmp_path_factory.mktemp("serve"), *options)
        return running[texts].http

    yield started
    for one in running.values():
        assert one.stop() == 0, one.log()
        assert "Traceback" not in one.log()


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("ask", INTERFACES)
def test_a_stop_text_in_a_thought_does_not_count(ask, is_streaming, start) -> None:
    http = start(THOUGHT, "</think>", ANSWER, END)
    found = ask(http, [STOP], is_streaming)
    assert found == (THOUGHT, ANSWER, FINISHED[ask][0])


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("ask", INTERFACES)
def test_a_stop_text_in_the_answer_counts(ask, is_streaming, start) -> None:
    http = start(THOUGHT, "</think>", ANSWER, END)
    assert ask(http, ["ris"], is_streaming) == (THOUGHT, "Pa", FINISHED[ask][1])


@pytest.mark.parametrize(
    "stop", ["</think>", "think>", "Yes.</think>Pa", "</think>Paris", ">Paris"]
)
@pytest.mark.parametrize("ask", INTERFACES)
def test_a_stop_text_that_spans_the_end_of_the_thought_does_not_count(ask, stop, start) -> None:
    http = start(THOUGHT, "</think>", ANSWER, END)
    assert ask(http, [stop], False) == (THOUGHT, ANSWER, FINISHED[ask][0])


@pytest.mark.parametrize("is_streaming", [False, True])
@pytest.mark.parametrize("ask", INTERFACES)
def test_a_thought_that_ends_in_pieces_of_its_tag(ask, is_streaming, start) -> None:
    http = start(THOUGHT, "</", "think", ">", ANSWER, END)
    assert ask(http, [STOP], is_streaming) == (THOUGHT, ANSWER, FINISHED[ask][0])
    assert ask(http, ["ar"], is_streaming) == (THOUGHT, "P", FINISHED[ask][1])


@pytest.mark.parametrize("stop", ["\n", " \n", " "])
@pytest.mark.parametrize("ask", INTERFACES)
def test_the_layout_before_the_answer_is_no_end(ask, stop, start) -> None:
    http = start(THOUGHT, "</think>", " ", "\n", ANSWER, END)
    assert ask(http, [stop], False) == (THOUGHT, ANSWER, FINISHED[ask][0])
    assert ask(http, ["\nParis"], False)[:2] == (THOUGHT, "")


@pytest.mark.parametrize("ask", INTERFACES)
def test_a_thought_that_does_not_end(ask, start) -> None:
    http = start(THOUGHT, END)
    assert ask(http, [STOP, "Yes"], False) == (THOUGHT, "", FINISHED[ask][0])


def test_a_completion_has_no_thought(start) -> None:
    http = start(THOUGHT, "</think>", ANSWER, END)
    body = {"prompt": "<think>", "stop": "it?", "max_tokens": 99}
    [choice] = http.post("/v1/completions", json=body).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("Question: is ", "stop")

"""Tokens that alone may come, and words that never come, in every interface that takes them."""

import pytest

from tests.scripted import END, ids_of, write_scripted_model
from tests.server.serving import ServerProcess

[BEGIN] = ids_of("<think>")
SAID = ids_of(" The", " capital", " is", " Paris")
OTHER = ids_of(" Rome", ".")
[END_ID] = ids_of(END)
PARIS, ROME = SAID[-1], OTHER[0]
VOCAB_SIZE = 2048


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    """The model says “ The capital is Paris” and, where it may not, “ Rome.” in its place."""
    folder = write_scripted_model(
        tmp_path_factory.mktemp("model"),
        [BEGIN, *SAID, END_ID],
        [*OTHER, END_ID],
        second_best=[[SAID[2], ROME]],
    )
    running = ServerProcess(tmp_path_factory.mktemp("serve"), "--model", folder)
    yield running.http
    assert running.stop() == 0, running.log()
    assert "Traceback" not in running.log()


def complete(http, **fields):
    body = {"prompt": [BEGIN], "max_tokens": 9, **fields}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return [choice["text"] for choice in answer.json()["choices"]]


def test_the_model_says_what_it_says(http) -> None:
    assert complete(http) == [" The capital is Paris"]
    assert complete(http, bad_words=[], allowed_token_ids=None) == [" The capital is Paris"]


@pytest.mark.parametrize(
    ("words", "is_kept"),
    [
        (["Paris"], False),
        ([" Paris"], False),
        (["is Paris"], False),
        (["Berlin", "capital is Paris"], False),
        (["The capital is Paris"], False),
        (["Paris is", "the Paris", "Pari", "capital Paris"], True),
    ],
)
def test_bad_words_never_come(words, is_kept, http) -> None:
    text = " The capital is Paris" if is_kept else " The capital is Rome."
    assert complete(http, bad_words=words) == [text]
    assert (
        complete(http, bad_words=words, n=2, logit_bias={PARIS: 100 * (not is_kept)}) == [text] * 2
    )


def test_only_allowed_tokens_come(http) -> None:
    assert complete(http, allowed_token_ids=[*SAID[:3], *OTHER, END_ID]) == [
        " The capital is Rome."
    ]
    assert complete(http, allowed_token_ids=[PARIS], max_tokens=3) == [" Paris" * 3]
    biased = {"logit_bias": {PARIS: 100}, "min_tokens": 2}
    assert complete(http, allowed_token_ids=[ROME, END_ID], **biased, max_tokens=2) == [" Rome" * 2]
    assert complete(http, allowed_token_ids=[END_ID], min_tokens=4) == [""]


def test_they_hold_together_and_with_grammars(http) -> None:
    both = {"allowed_token_ids": [*SAID, *OTHER, END_ID], "bad_words": ["Paris"]}
    assert complete(http, **both) == [" The capital is Rome."]
    biased = {PARIS: 100, ROME: 50}
    choice = {"guided_choice": [" Paris", " Rome"], "logit_bias": biased}
    assert complete(http, **choice) == [" Paris"]
    assert complete(http, **choice, bad_words=["Paris"]) == [" Rome"]
    assert complete(http, **choice, allowed_token_ids=[ROME, END_ID]) == [" Rome"]


def test_rules_that_leave_nothing_are_the_requests_fault(http) -> None:
    body = {"prompt": [BEGIN], "guided_choice": [" Paris"], "bad_words": ["Paris"]}
    answer = http.post("/v1/completions", json=body)
    assert answer.status_code == 400
    assert "leave no token" in answer.json()["error"]["message"]


def test_other_interfaces_take_them(http) -> None:
    thinks = {"chat_template_kwargs": {"enable_thinking": True}, "bad_words": ["Paris"]}
    messages = [{"role": "user", "content": "x"}]
    chat = http.post("/v1/chat/completions", json={"messages": messages, **thinks})
    [choice] = chat.json()["choices"]
    assert choice["message"]["reasoning_content"] == "The capital is Rome."
    answer = http.post("/v1/responses", json={"input": "x", **thinks})
    assert answer.json()["output"][0]["content"][0]["text"] == "The capital is Rome."


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"allowed_token_ids": []}, "allowed_token_ids", "at least 1 item"),
        ({"allowed_token_ids": [1, VOCAB_SIZE]}, "allowed_token_ids", "token id 2048 is outside"),
        ({"allowed_token_ids": [-1]}, "allowed_token_ids.0", "a number of at least 0"),
        ({"allowed_token_ids": ["1"]}, "allowed_token_ids.0", "a whole number"),
        ({"bad_words": "Paris"}, "bad_words", "expected a list"),
        ({"bad_words": ["a", ""]}, "bad_words.1", "at least 1 character"),
        ({"bad_words": ["a"] * 513}, "bad_words", "at most 512 items"),
    ],
)
def test_wrong_ones_are_refused_by_name(fields, param, message, http) -> None:
    answer = http.post("/v1/completions", json={"prompt": [BEGIN], **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert message in error["message"]

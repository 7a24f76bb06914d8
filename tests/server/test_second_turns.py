"""Conversations over HTTP: each turn takes the pages of the turn before, its answer's too."""

import pytest

from tests.devices import LEAST_PAGE, device_kind
from tests.reference.capitals import countries
from tests.server.serving import MODEL

PAGE_SIZE = max(4, LEAST_PAGE[device_kind()])
OPTIONS = ("--page-size", PAGE_SIZE, "--max-seq", 256, "--max-batch", 4)
COUNTED = "glm_cached_prompt_tokens_total"
NUM_TURNS = 7


def converse(server):
    """The answers of a conversation, and the usage of each of its turns."""
    messages, answers, usages = [], [], []
    for entry in countries()[:NUM_TURNS]:
        question = f"What is the capital of {entry['country']}?"
        messages.append({"role": "user", "content": question})
        fields = {"model": MODEL, "messages": messages, "temperature": 0}
        answer = server.http.post("/v1/chat/completions", json=fields)
        assert answer.status_code == 200, answer.text
        [choice] = answer.json()["choices"]
        assert choice["finish_reason"] == "stop"
        answers.append(choice["message"]["content"])
        usages.append(answer.json()["usage"])
        messages.append({"role": "assistant", "content": answers[-1]})
    return answers, usages


def cached_tokens(usages):
    return [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages]


@pytest.mark.parametrize("course", [(), ("--prefill-chunk", 5)], ids=str)
def test_a_turn_reuses_the_answers_before_it(start_server, course) -> None:
    cold, _ = converse(start_server(*OPTIONS, "--no-prefix-cache"))
    server = start_server(*OPTIONS, *course)
    answers, usages = converse(server)
    assert answers == cold
    pairs = [(usage["prompt_tokens"], usage["total_tokens"]) for usage in usages[:-1]]
    pages = [(total - 1) // PAGE_SIZE for _, total in pairs]
    assert cached_tokens(usages) == [0, *(PAGE_SIZE * count for count in pages)]
    assert sum(pages) > sum(prompt // PAGE_SIZE for prompt, _ in pairs)
    assert server.metric(COUNTED) == sum(cached_tokens(usages))
    answers, usages = converse(server)
    assert answers == cold
    expected = [(usage["prompt_tokens"] - 1) // PAGE_SIZE * PAGE_SIZE for usage in usages]
    assert cached_tokens(usages) == expected

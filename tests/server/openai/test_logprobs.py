"""Log-probabilities of whole answers, rendered as they come."""

import json

import orjson
import pytest

from glm_engine.server.openai.logprobs import JsonList
from tests.server.serving import QUESTION

SAMPLED = {"max_tokens": 12, "ignore_eos": True, "temperature": 1, "seed": 4, "n": 2}


@pytest.mark.parametrize("parts", [[], [[]], [[1]], [[1, "a"], [], [{"b": None}]]])
def test_a_list_that_grows_is_the_list_of_its_parts(parts) -> None:
    grown = JsonList()
    for part in parts:
        grown.extend(part)
    assert orjson.loads(orjson.dumps(grown.fragment())) == [one for part in parts for one in part]


def events_of(server, path, fields):
    answer = server.http.post(path, json={**fields, "stream": True})
    lines = answer.text.split("\n\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def joined(rows):
    """Join the lists of log-probabilities that came one after another."""
    return {
        name: [one for row in rows for one in row[name]] if rows[0][name] is not None else None
        for name in rows[0]
    }


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": QUESTION, "logprobs": 3}),
        (
            "/v1/chat/completions",
            {
                "messages": [{"role": "user", "content": QUESTION}],
                "logprobs": True,
                "top_logprobs": 3,
            },
        ),
    ],
)
def test_a_whole_answer_lists_what_its_stream_lists(server, path, fields) -> None:
    fields = {**fields, **SAMPLED}
    whole = server.http.post(path, json=fields).json()
    choices = [choice for event in events_of(server, path, fields) for choice in event["choices"]]
    for choice in whole["choices"]:
        rows = [one["logprobs"] for one in choices if one["index"] == choice["index"]]
        assert choice["logprobs"] == joined([row for row in rows if row])
        assert all(len(value) == 12 for value in choice["logprobs"].values() if value)

"""Log-probabilities of whole answers: held in few bytes, rendered while they are sent."""

import json
import tracemalloc
from types import SimpleNamespace

import numpy
import pytest

from glm_engine.core import abi
from glm_engine.core.abi import record_dtype
from glm_engine.core.requests import Request
from glm_engine.server.bridge import COLUMNS, take_event
from glm_engine.server.choices import Choice, Turn
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.http.streaming import chunks_of
from glm_engine.server.openai.chat_completions import ChatPresenter
from glm_engine.server.openai.completions import CompletionPresenter
from glm_engine.server.openai.responses.response_events import ResponsePresenter
from glm_engine.server.openai.responses.response_fields import LOGPROBS, ResponsesRequest
from glm_engine.text.dialogue import DialogueParser
from glm_engine.text.tokenizer import IncrementalDetokenizer
from tests.server.serving import QUESTION

SAMPLED = {"max_tokens": 12, "ignore_eos": True, "temperature": 1, "seed": 4, "n": 2}


EVENT = record_dtype("engine_event")
NUM_TOKENS, NUM_BEST = 3000, 20
MOST_HELD_BYTES = 320
MOST_PEAK_BYTES = 2 * 2**20
SERVICE = SimpleNamespace(
    model_name="glm",
    defaults={"temperature": 1.0, "top_p": 1.0},
    spelling=lambda token_id: b"t%d " % token_id,
)


def event_with_best_tokens(number):
    """Return the engine's record of a token with as many alternatives as it gives."""
    record = numpy.zeros(1, dtype=EVENT)
    record["kind"], record["token_id"], record["num_logprobs"] = abi.EVENT_TOKEN, number, NUM_BEST
    record["logprob"] = -number / 7
    record["top_ids"] = numpy.arange(number, number + NUM_BEST)
    record["top_logprobs"] = -numpy.arange(number, number + NUM_BEST) / 3
    return record


def presenter_of(kind, choice):
    """Return what writes the whole answer of a choice with log-probabilities."""
    record = RequestRecord("/v1", prompt_tokens=1)
    job = SimpleNamespace(record=record, choices=[choice], complete=[].append)
    fields = SimpleNamespace(
        stream=False,
        prediction=None,
        stream_options=None,
        logprobs=NUM_BEST,
        prompt_logprobs=None,
        return_token_ids=False,
    )
    turn = Turn(DialogueParser(False, []))
    if kind == "completions":
        return CompletionPresenter(SERVICE, job, fields, [None])
    if kind == "chat":
        return ChatPresenter(SERVICE, job, fields, [turn])
    asked = {"model": "glm", "input": "x", "include": [LOGPROBS], "top_logprobs": NUM_BEST}
    return ResponsePresenter(SERVICE, job, ResponsesRequest.model_validate(asked), turn)


def told_rows(kind, answer):
    """Return the log-probability of each token and of its alternatives, as an answer lists them."""
    if kind == "completions":
        rows = answer["choices"][0]["logprobs"]
        best = [list(one.values()) for one in rows["top_logprobs"]]
        return list(zip(rows["token_logprobs"], best, strict=True))
    if kind == "chat":
        rows = answer["choices"][0]["logprobs"]["content"]
    else:
        rows = answer["output"][0]["content"][0]["logprobs"]
    return [(row["logprob"], [one["logprob"] for one in row["top_logprobs"]]) for row in rows]


@pytest.mark.parametrize("kind", ["completions", "chat", "responses"])
def test_a_whole_answer_is_held_in_few_bytes(kind) -> None:
    detokenizer = IncrementalDetokenizer(SERVICE.spelling)
    choice = Choice(0, Request([1]), detokenizer, None, frozenset())
    presenter = presenter_of(kind, choice)
    tracemalloc.start()
    try:
        for number in range(NUM_TOKENS):
            record = event_with_best_tokens(number)
            values = [record[name].tolist()[0] for name in COLUMNS[2:]]
            take_event(choice, abi.EVENT_TOKEN, values, record, 0)
            presenter.take(choice, next(choice.advance()))
        choice.ending = ("length", 0, "")
        presenter.take(choice, next(choice.advance()))
        held, _ = tracemalloc.get_traced_memory()
        assert held < NUM_TOKENS * MOST_HELD_BYTES
        tracemalloc.reset_peak()
        num_bytes = sum(map(len, chunks_of(presenter.body())))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert num_bytes > MOST_PEAK_BYTES / 2
    assert peak - held < MOST_PEAK_BYTES
    answer = json.loads(b"".join(chunks_of(presenter.body())))
    rows = told_rows(kind, answer)
    assert len(rows) == NUM_TOKENS
    logprob, best = rows[-1]
    assert logprob == float(numpy.float32(-(NUM_TOKENS - 1) / 7))
    assert best[:NUM_BEST][1:3] == [float(numpy.float32(-(NUM_TOKENS + at) / 3)) for at in (0, 1)]


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


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        {"guided_choice": [" Paris, France", " Rome"]},
        {"guided_regex": "[ab]{3}[0-9]{2}"},
        {"guided_json": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        {"allowed_token_ids": [5, 6]},
    ],
    ids=lambda rule: next(iter(rule)),
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_masks_leave_some_tokens_fewer_alternatives(server, path, rule, is_streamed) -> None:
    fields = {"max_tokens": 12, "temperature": 0, **rule}
    if path == "/v1/completions":
        fields |= {"prompt": QUESTION, "logprobs": 8, "echo": True}
    else:
        messages = [{"role": "user", "content": QUESTION}]
        fields |= {"messages": messages, "logprobs": True, "top_logprobs": 8}
    if is_streamed:
        rows = [one["choices"][0]["logprobs"] for one in events_of(server, path, fields)]
        lists = joined([one for one in rows if one])
    else:
        answer = server.http.post(path, json=fields)
        assert answer.status_code == 200, answer.text
        lists = answer.json()["choices"][0]["logprobs"]
    rows = lists["top_logprobs"] if "tokens" in lists else lists["content"]
    tops = [len(row if "tokens" in lists else row["top_logprobs"]) for row in rows if row]
    assert min(tops) < 8

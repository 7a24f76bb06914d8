"""Text that a client expects: what is taken for it, and what usage says of it."""

import json
import re
from types import SimpleNamespace

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.core import abi
from glm_engine.core.acceptance import looks_up
from glm_engine.core.requests import Request
from glm_engine.server.bridge import EngineBridge, Inbox
from glm_engine.server.choices import Choice, Turn
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.openai.chat_completions import ChatPresenter, ChatRequest
from glm_engine.text.dialogue import DialogueParser
from glm_engine.text.tokenizer import GlmTokenizer
from tests.scripted import END, ids_of, write_scripted_model
from tests.server.openai.test_chat import ASKED, chat
from tests.server.serving import ServerProcess
from tests.server.test_bridge import RecordedEngine

PARTS = [{"type": "text", "text": "Par"}, {"type": "text", "text": "is."}]
EXPECTED = {"type": "content", "content": "Paris."}
NUM_WORDS = 120
LEAST_SHARE = 0.95
NAMES = ("draft", "accepted")


def unrepeated_text() -> str:
    """A text of words with a token each, no word twice: looked up in itself, it gives no draft."""
    tokenizer = GlmTokenizer(CAPITALS)
    words = sorted(
        one.decode() for one in map(tokenizer.bytes_of, range(256, 2000)) if one[:1] == b" "
    )
    alone = [word for word in words if word[1:].isalpha() and len(ids_of(word)) == 1]
    return "".join(alone[:NUM_WORDS])


TEXT = unrepeated_text()


@pytest.fixture(scope="module")
def drafting(tmp_path_factory):
    """A server with drafts, whose model answers every question with TEXT."""
    folder = write_scripted_model(tmp_path_factory.mktemp("model"), ids_of("</think>", TEXT, END))
    running = ServerProcess(
        tmp_path_factory.mktemp("serve"), "--model", folder, "--speculate", "lookup:3"
    )
    yield running
    assert running.stop() == 0, running.log()


def ask(server, expected, **fields):
    """Return the text of an answer, its tokens, and the draft tokens accepted and rejected."""
    body = {"messages": ASKED, "prediction": {"type": "content", "content": expected}, **fields}
    answer = server.http.post("/v1/chat/completions", json=body).json()
    usage = answer["usage"]
    details = usage["completion_tokens_details"]
    counts = [details[f"{name}_prediction_tokens"] for name in ("accepted", "rejected")]
    return answer["choices"][0]["message"]["content"], usage["completion_tokens"], *counts


def test_the_wrong_text_counts_none_of_what_the_answer_repeats(drafting) -> None:
    body = {"prediction": {"type": "content", "content": "zebra " * 50}, "messages": ASKED}
    details = drafting.http.post("/v1/chat/completions", json=body).json()["usage"]
    counts = details["completion_tokens_details"]
    assert counts["accepted_prediction_tokens"] == 0
    assert counts["rejected_prediction_tokens"] > 50


@pytest.mark.parametrize("fields", [{}, {"max_tokens": 80}, {"stop": [TEXT[-40:-30]]}, {"seed": 3}])
def test_the_right_text_is_accepted_nearly_whole(drafting, fields) -> None:
    plain = ask(drafting, "", **fields)
    assert plain[1] >= 80
    assert plain[2:] == (0, 0)
    text, num_tokens, accepted, rejected = ask(drafting, TEXT, **fields)
    assert (text, num_tokens) == plain[:2]
    assert accepted >= LEAST_SHARE * (num_tokens - 1)
    assert accepted + rejected >= NUM_WORDS


def test_a_wrong_text_changes_no_answer(drafting) -> None:
    wrong = "".join(reversed(TEXT.split(" ")))
    assert ask(drafting, wrong)[:2] == ask(drafting, "")[:2]


def test_a_text_that_is_right_behind_its_beginning_is_found_again(drafting) -> None:
    text, _, accepted, _ = ask(drafting, f"Something else, but then{TEXT}")
    assert text == ask(drafting, "")[0]
    assert accepted > NUM_WORDS // 2


def test_an_expected_text_longer_than_the_context_is_cut(drafting) -> None:
    assert ask(drafting, f"{TEXT}{' word' * 100_000}")[2] > NUM_WORDS // 2


@pytest.mark.parametrize("method", ["off", "lookup", "auto", "mtp"])
def test_only_lookup_reads_a_prediction(method) -> None:
    assert looks_up({"speculate": abi.SPECULATE[method]}) == (method in ("lookup", "auto"))


def test_metrics_and_gauges_count_draft_tokens(drafting) -> None:
    def samples():
        text = drafting.http.get("/metrics").text
        found = re.findall(r"^((?:glm_|vllm:)\S*draft\S*|vllm:spec_\S+) (\S+)$", text, re.M)
        return {name: float(value) for name, value in found if "_created" not in name}

    before = samples()
    assert ask(drafting, TEXT)[2] > 0
    gained = {name: value - before[name] for name, value in samples().items()}
    labels = f'engine="0",model_name="{drafting.model}"'
    drafts, vllm = gained["glm_drafts_total"], "vllm:spec_decode_num"
    drafted, accepted = (gained[f"{vllm}_{name}_tokens_total{{{labels}}}"] for name in NAMES)
    assert gained["glm_draft_tokens_total"] == drafted >= accepted
    assert gained[f"{vllm}_drafts_total{{{labels}}}"] == drafts
    name = f"{vllm}_accepted_tokens_per_pos_total"
    by_position = [gained[f'{name}{{{labels},position="{at}"}}'] for at in range(3)]
    ours = [gained[f'glm_accepted_draft_tokens_total{{position="{at}"}}'] for at in range(3)]
    assert ours == by_position
    assert sum(by_position) == accepted
    assert drafts >= by_position[0] >= by_position[1] >= by_position[2] > 0
    assert len([one for one in gained if "per_pos" in one]) == 3
    gauges = drafting.gauges()
    assert gauges["speculate"] == "lookup"
    assert 1 < gauges["acceptance_length"] <= 4
    assert 0 < gauges["acceptance_rate"] <= 1


def test_a_stream_with_drafts_has_the_events_of_one_without(drafting) -> None:
    def events(**fields):
        body = {"messages": ASKED, "stream": True, **fields}
        text = drafting.http.post("/v1/chat/completions", json=body).text
        return [json.loads(line[6:])["choices"] for line in text.split("\n") if "choices" in line]

    assert events(prediction={"type": "content", "content": TEXT}) == events()
    assert len(events()) > NUM_WORDS


@pytest.mark.parametrize("content", ["", "Paris.", PARTS])
@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"logprobs": True}, {"max_completion_tokens": 9}])
def test_a_server_without_drafts_takes_it_and_counts_none(client, content, fields) -> None:
    answer = chat(client, prediction={"type": "content", "content": content}, **fields)
    assert {choice.message.content for choice in answer.choices} == {"Paris."}
    details = answer.usage.completion_tokens_details
    counts = details.accepted_prediction_tokens, details.rejected_prediction_tokens
    assert counts == (0, 0)


def test_usage_without_it_has_no_such_counts(client) -> None:
    details = chat(client).usage.completion_tokens_details.model_dump(exclude_unset=True)
    assert details == {"reasoning_tokens": 0}


@pytest.mark.parametrize(
    ("prediction", "param", "message"),
    [
        ("Paris.", "prediction", "expected an object, got 'Paris.'"),
        ({"type": "content"}, "prediction.content", "Field required"),
        ({"content": "x"}, "prediction.type", "Field required"),
        ({"type": "text", "content": "x"}, "prediction.type", "expected 'content', got 'text'"),
        (
            {"type": "content", "content": 7},
            "prediction.content",
            "expected a string or a list of parts, got 7",
        ),
        (
            {"type": "content", "content": None},
            "prediction.content",
            "expected a string or a list of parts, got null",
        ),
        (
            {"type": "content", "content": [{"type": "image_url"}]},
            "prediction.content",
            "part 0 has type 'image_url'; supported types: text",
        ),
    ],
)
def test_what_is_no_text_is_refused(server, prediction, param, message) -> None:
    body = {"messages": ASKED, "prediction": prediction}
    answer = server.http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"] == f"{param}: {message}"


def usage_of(num_expected, num_predicted, is_streamed):
    """What usage says of a prediction of so many tokens, of which so many came."""
    engine = RecordedEngine(2)
    engine.records["request_id"] = 1
    engine.records["kind"] = [abi.EVENT_TOKEN, abi.EVENT_FINISHED]
    engine.records["finish_reason"] = abi.FINISH_REASONS.index("length")
    engine.records["num_predicted_tokens"][1] = num_predicted
    detokenizer = SimpleNamespace(push=lambda _: "Paris.", finish=str)
    choice, bridge = (
        Choice(
            0, Request([1], prediction_tokens=[2] * num_expected), detokenizer, None, frozenset()
        ),
        EngineBridge(engine, None),
    )
    bridge.routes[1] = (choice, Inbox())
    bridge.deliver()
    job = SimpleNamespace(record=RequestRecord("/v1"), choices=[choice], complete=None)
    options = {"stream_options": {"include_usage": True}} if is_streamed else {}
    fields = ChatRequest(messages=ASKED, prediction=EXPECTED, stream=is_streamed, **options)
    turns = [Turn(DialogueParser(False, []))]
    presenter = ChatPresenter(SimpleNamespace(model_name="glm"), job, fields, turns)
    for piece in choice.advance():
        (presenter.event if is_streamed else presenter.take)(choice, piece)
    text = (
        presenter.closing().split(b"\n\n")[0].removeprefix(b"data: ")
        if is_streamed
        else presenter.body()
    )
    return json.loads(text)["usage"]["completion_tokens_details"]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize(("num_predicted", "accepted"), [(0, 0), (7, 7), (9, 9), (12, 9)])
def test_usage_counts_expected_tokens_that_came_and_those_that_did_not(
    num_predicted, accepted, is_streamed
) -> None:
    assert usage_of(9, num_predicted, is_streamed) == {
        "reasoning_tokens": 0,
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": 9 - accepted,
    }

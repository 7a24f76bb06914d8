"""Log-probabilities of prompts, token ids and cut prompts, on completions and chat."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.server.openai.answer_events import echoed_offsets
from glm_engine.text.tokenizer import GlmTokenizer
from tests.devices import is_rounded
from tests.golden_checks import numpy_logits
from tests.reference.compare import log_softmax
from tests.server.serving import QUESTION

TOKENIZER = GlmTokenizer(CAPITALS)
IDS = TOKENIZER.encode(QUESTION)
END = TOKENIZER.encode("<|endoftext|>", add_special_tokens=False)
TOLERANCE = 0.1 if is_rounded() else 1e-3
FARTHEST = 1.0 if is_rounded() else 0.5
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": QUESTION}]
ECHO = {"prompt": QUESTION, "echo": True, "logprobs": 1, "max_tokens": 1}


def asked(server, path=COMPLETIONS, status=200, **fields):
    answer = server.http.post(path, json=fields)
    assert answer.status_code == status, answer.text
    return answer.json()


def streamed(server, path=COMPLETIONS, **fields):
    text = server.http.post(path, json={**fields, "stream": True}).text
    return [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]


def expected_logprobs(ids):
    """float64 [tokens, vocab]: what the numpy model says of each token after the first."""
    [logits] = numpy_logits(CAPITALS, [list(ids)])
    return log_softmax(logits.astype(np.float64))[:-1]


def check_close(values, expected):
    """Near the numpy model, but for the few rows whose experts nearly tie in FP8."""
    distance = np.abs(np.asarray(values) - expected)
    assert np.quantile(distance, 0.75) < TOLERANCE
    assert np.max(distance) < FARTHEST


def check_lists(lists, ids):
    """The four lists begin with those of the prompt `ids`, by the numpy model."""
    assert lists["token_logprobs"][0] is lists["top_logprobs"][0] is None
    assert lists["tokens"][: len(ids)] == [TOKENIZER.decode([one]) for one in ids]
    expected = expected_logprobs(ids)
    values, tops = (lists[name][1 : len(ids)] for name in ("token_logprobs", "top_logprobs"))
    check_close(values, expected[np.arange(len(ids) - 1), ids[1:]])
    check_close([max(best.values()) for best in tops], np.max(expected, axis=1))
    for token, value, best in zip(lists["tokens"][1:], values, tops, strict=False):
        assert best[token] == value
    if not is_rounded() and len(ids) == len(IDS):
        is_greedy = [value == max(best.values()) for value, best in zip(values, tops, strict=True)]
        assert is_greedy == (np.argmax(expected, axis=1) == ids[1:]).tolist()


@pytest.mark.parametrize("prompt", [QUESTION, IDS], ids=["text", "ids"])
@pytest.mark.parametrize("max_tokens", [0, 1, 4])
def test_echo_lists_the_prompt_as_lm_eval_reads_it(server, prompt, max_tokens) -> None:
    answer = asked(server, **{**ECHO, "prompt": prompt, "max_tokens": max_tokens})
    [choice] = answer["choices"]
    lists = choice["logprobs"]
    check_lists(lists, IDS)
    assert choice["text"].startswith(QUESTION)
    assert {len(one) for one in lists.values()} == {len(lists["tokens"])}
    tokens = lists["tokens"][:-1] if choice["finish_reason"] == "stop" else lists["tokens"]
    assert "".join(tokens) == choice["text"]
    offsets = np.cumsum([0, *map(len, lists["tokens"])])[:-1].tolist()
    assert lists["text_offset"] == offsets
    assert answer["usage"]["completion_tokens"] == len(lists["tokens"]) - len(IDS)
    assert choice["finish_reason"] == ("length" if max_tokens < 4 else "stop")


def test_an_echo_lists_the_token_that_ends_the_answer(server) -> None:
    """Its readers count: lm-eval takes all but the first so many and the last for its answer's."""
    paris = QUESTION + " Paris."
    [choice] = asked(server, **{**ECHO, "prompt": paris})["choices"]
    lists, ids = choice["logprobs"], TOKENIZER.encode(paris)
    assert (choice["text"], choice["finish_reason"]) == (paris, "stop")
    check_lists(lists, ids)
    assert lists["tokens"][len(ids) :] == ["<|endoftext|>"]
    assert lists["text_offset"][-1] == len(paris)
    assert lists["token_logprobs"][-1] == max(lists["top_logprobs"][-1].values())
    [streamed_choice] = [
        one["choices"][0] for one in streamed(server, **{**ECHO, "prompt": paris}) if one["choices"]
    ][-1:]
    assert streamed_choice["logprobs"]["tokens"][-1] == "<|endoftext|>"


def test_no_tokens_are_asked_for(server) -> None:
    for echo in (False, True):
        answer = asked(server, prompt=QUESTION, max_tokens=0, echo=echo)
        [choice] = answer["choices"]
        assert (choice["text"], choice["finish_reason"]) == (QUESTION * echo, "length")
        assert answer["usage"]["completion_tokens"] == 0
        assert answer["usage"]["prompt_tokens"] == len(IDS)
        events = streamed(server, prompt=QUESTION, max_tokens=0, echo=echo)
        assert "".join(one["choices"][0]["text"] for one in events) == QUESTION * echo
        assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_prompts_without_answers_are_counted(server) -> None:
    before = server.metric("glm_prompt_tokens_total")
    asked(server, prompt=IDS, max_tokens=0)
    assert server.metric("glm_prompt_tokens_total") == before + len(IDS)


def test_echoed_lists_are_the_same_streamed_and_for_every_choice(server) -> None:
    fields = {**ECHO, "prompt": [QUESTION, IDS * 30], "n": 2, "logprobs": 3, "max_tokens": 2}
    whole = asked(server, **fields, seed=3)["choices"]
    events = streamed(server, **fields, seed=3)
    check_lists(whole[0]["logprobs"], IDS)
    check_lists(whole[3]["logprobs"], IDS * 30)
    for choice in whole:
        parts = [
            one["choices"][0] for one in events if one["choices"][0]["index"] == choice["index"]
        ]
        assert "".join(one["text"] for one in parts) == choice["text"]
        rows = [one["logprobs"] for one in parts if one["logprobs"]]
        for name, values in choice["logprobs"].items():
            assert [value for row in rows for value in row[name]] == values


def test_a_repeated_request_gives_the_same_numbers(server) -> None:
    fields = {**ECHO, "prompt": IDS * 40, "logprobs": 5, "max_tokens": 0}
    first = asked(server, **fields)["choices"][0]["logprobs"]
    asked(server, prompt=IDS * 40, max_tokens=1)
    assert asked(server, **fields)["choices"][0]["logprobs"] == first
    with ThreadPoolExecutor(8) as pool:
        others = list(pool.map(lambda _: asked(server, **fields), range(8)))
    assert all(one["choices"][0]["logprobs"] == first for one in others)


def check_prompt_logprobs(rows, ids, num_best):
    assert rows[0] is None
    assert len(rows) == len(ids)
    for row, token, expected in zip(rows[1:], ids[1:], expected_logprobs(ids), strict=True):
        own = row[str(token)]
        assert own["logprob"] == pytest.approx(expected[token], abs=TOLERANCE)
        assert own["decoded_token"] == TOKENIZER.decode([token], skip_special_tokens=False)
        assert num_best <= len(row) <= num_best + 1
        if is_rounded():
            continue
        best = np.argsort(-expected, kind="stable")[:num_best].tolist()
        assert set(map(int, row)) == {token, *best}
        ranks = {int(number): one["rank"] for number, one in row.items()}
        expected_ranks = {number: place for place, number in enumerate(best, start=1)}
        assert ranks == {token: None, **expected_ranks}


@pytest.mark.parametrize("num_best", [0, 1, 5, 20])
def test_prompt_logprobs_of_completions(server, num_best) -> None:
    answer = asked(server, prompt=[QUESTION, IDS], n=2, prompt_logprobs=num_best, max_tokens=2)
    for choice in answer["choices"]:
        assert choice["logprobs"] is None
        check_prompt_logprobs(choice["prompt_logprobs"], IDS, num_best)


def test_prompt_logprobs_of_a_chat_stand_once_beside_its_choices(server) -> None:
    answer = asked(
        server, CHAT, messages=MESSAGES, n=2, prompt_logprobs=2, return_token_ids=True, max_tokens=3
    )
    ids = answer["prompt_token_ids"]
    check_prompt_logprobs(answer["prompt_logprobs"], ids, 2)
    assert len(ids) == answer["usage"]["prompt_tokens"]
    assert all("prompt_logprobs" not in choice for choice in answer["choices"])


def test_both_forms_in_one_answer(server) -> None:
    answer = asked(server, **{**ECHO, "prompt_logprobs": 4, "logprobs": 2})
    [choice] = answer["choices"]
    check_lists(choice["logprobs"], IDS)
    check_prompt_logprobs(choice["prompt_logprobs"], IDS, 4)
    assert all(len(best) <= 3 for best in choice["logprobs"]["top_logprobs"][1:])


def test_a_prompt_of_one_token(server) -> None:
    answer = asked(server, prompt=IDS[:1], echo=True, logprobs=2, prompt_logprobs=2, max_tokens=0)
    [choice] = answer["choices"]
    assert choice["prompt_logprobs"] == [None]
    assert choice["logprobs"]["token_logprobs"] == choice["logprobs"]["top_logprobs"] == [None]
    assert choice["logprobs"]["text_offset"] == [0]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (COMPLETIONS, {"prompt_logprobs": 21}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt_logprobs": -1}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt_logprobs": True}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        (CHAT, {"prompt_logprobs": 0, "stream": True}, "prompt_logprobs"),
        (CHAT, {"prompt_logprobs": 21}, "prompt_logprobs"),
        (CHAT, {"max_tokens": 0}, "max_tokens"),
        (COMPLETIONS, {"max_tokens": -1}, "max_tokens"),
        (COMPLETIONS, {"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        (COMPLETIONS, {"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        (COMPLETIONS, {"truncate_prompt_tokens": 1_000_000}, "truncate_prompt_tokens"),
        (CHAT, {"truncate_prompt_tokens": 1_000_000}, "truncate_prompt_tokens"),
        (COMPLETIONS, {"return_token_ids": 1}, "return_token_ids"),
        ("/v1/responses", {"prompt_logprobs": 1}, "prompt_logprobs"),
        ("/v1/responses", {"truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        ("/v1/responses", {"return_token_ids": True}, "return_token_ids"),
    ],
)
def test_what_cannot_be_is_refused_by_name(server, path, fields, param) -> None:
    prompt = {COMPLETIONS: "prompt", CHAT: "messages"}.get(path, "input")
    fields = {prompt: MESSAGES if path == CHAT else QUESTION, **fields}
    assert asked(server, path, 400, **fields)["error"]["param"] == param


def test_answers_that_are_too_large_are_refused_before_they_run(start_server) -> None:
    server = start_server("--max-bodies-size", "1MiB")
    fields = {"prompt": IDS * 200, "max_tokens": 0}
    error = asked(server, status=400, **fields, prompt_logprobs=20)["error"]
    assert error["param"] == "prompt_logprobs"
    assert "--max-bodies-size" in error["message"]
    assert (
        asked(server, status=400, **fields, n=40, echo=True, logprobs=1)["error"]["param"]
        == "logprobs"
    )
    for _ in range(24):
        asked(server, **fields, echo=True, logprobs=6)


def test_an_answer_that_follows_a_grammar_or_stops_is_listed_behind_its_prompt(server) -> None:
    for fields in ({"guided_choice": [" Paris", " Rome"]}, {"stop": ["ris"]}):
        [choice] = asked(server, **{**ECHO, "max_tokens": 4}, **fields)["choices"]
        check_lists(choice["logprobs"], IDS)
        assert choice["finish_reason"] == "stop"
        assert choice["logprobs"]["tokens"][len(IDS)] == " Paris"


def test_rules_of_tokens_bind_the_answer_and_not_the_prompt(server) -> None:
    [rome] = TOKENIZER.encode(" Rome", add_special_tokens=False)
    rules = ({"allowed_token_ids": [rome]}, {"bad_words": [" Paris"]})
    plain = asked(server, **ECHO)["choices"][0]["logprobs"]
    for fields in rules:
        [choice] = asked(server, **ECHO, **fields)["choices"]
        check_lists(choice["logprobs"], IDS)
        for name, values in plain.items():
            assert choice["logprobs"][name][: len(IDS)] == values[: len(IDS)]
        assert choice["logprobs"]["tokens"][len(IDS)] != " Paris"
        if "allowed_token_ids" in fields:
            assert choice["logprobs"]["tokens"][len(IDS) :] == [" Rome"]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_long_prompts_end_with_their_time_and_with_their_client(server, is_streamed) -> None:
    fields = {"prompt": IDS * 800, "echo": True, "logprobs": 20, "stream": is_streamed}
    error = streamed(server, **fields, timeout_seconds=0.005)[-1] if is_streamed else None
    error = error or asked(server, status=408, **fields, timeout_seconds=0.005)
    assert error["error"]["code"] == "deadline_exceeded"
    with server.http.stream("POST", COMPLETIONS, json={**fields, "stream": True}) as answer:
        next(answer.iter_bytes())
    server.wait_until_idle()


@pytest.mark.parametrize("is_streamed", [False, True])
def test_token_ids_of_completions(server, is_streamed) -> None:
    fields = {"prompt": [QUESTION, IDS[:2]], "return_token_ids": True, "n": 2, "temperature": 0}
    answers = streamed(server, **fields) if is_streamed else [asked(server, **fields)]
    found = {index: {"prompt_token_ids": [], "token_ids": []} for index in range(4)}
    for choice in (choice for one in answers for choice in one["choices"]):
        for name, ids in found[choice["index"]].items():
            ids.append(choice.get(name))
    for index, lists in found.items():
        assert lists["prompt_token_ids"][0] == (IDS if index < 2 else IDS[:2])
        assert not any(lists["prompt_token_ids"][1:])
        ids = [one for part in lists["token_ids"] for one in part]
        if index < 2:
            assert ids == [*TOKENIZER.encode(" Paris.", add_special_tokens=False), *END]


@pytest.mark.parametrize("is_streamed", [False, True])
def test_token_ids_of_a_chat(server, is_streamed) -> None:
    fields = {"messages": MESSAGES, "return_token_ids": True, "max_tokens": 5, "temperature": 0}
    answers = streamed(server, CHAT, **fields) if is_streamed else [asked(server, CHAT, **fields)]
    of_prompt = [one["prompt_token_ids"] for one in answers if "prompt_token_ids" in one]
    rendered = asked(server, "/tokenize", messages=MESSAGES)["tokens"]
    assert of_prompt == [rendered]
    ids = [one for answer in answers for one in answer["choices"][0]["token_ids"]]
    assert len(ids) == asked(server, CHAT, **fields)["usage"]["completion_tokens"]
    plain = asked(server, prompt=rendered, max_tokens=5, temperature=0, return_token_ids=True)
    assert plain["choices"][0]["token_ids"] == ids


def test_no_token_ids_unless_asked(server) -> None:
    for path, fields in ((COMPLETIONS, {"prompt": QUESTION}), (CHAT, {"messages": MESSAGES})):
        assert "token_ids" not in server.http.post(path, json={**fields, "max_tokens": 2}).text


@pytest.mark.parametrize("prompt", [QUESTION, IDS], ids=["text", "ids"])
@pytest.mark.parametrize("keep", [1, 3, len(IDS), len(IDS) + 9])
def test_a_prompt_keeps_its_last_tokens(server, prompt, keep) -> None:
    answer = asked(
        server, prompt=prompt, truncate_prompt_tokens=keep, return_token_ids=True, max_tokens=1
    )
    assert answer["choices"][0]["prompt_token_ids"] == IDS[-keep:]
    assert answer["usage"]["prompt_tokens"] == len(IDS[-keep:])


def test_a_prompt_beyond_the_context_is_cut_to_it(server) -> None:
    max_seq = server.http.get("/v1/models").json()["data"][0]["max_model_len"]
    text, ids = QUESTION * max_seq, IDS * max_seq
    for prompt, max_tokens, num_left in ((ids, 0, 0), (text, 5, 5), (ids, None, 16)):
        fields = {"max_tokens": max_tokens, "ignore_eos": True, "truncate_prompt_tokens": -1}
        answer = asked(server, prompt=prompt, **fields)
        assert answer["usage"]["prompt_tokens"] == max_seq - num_left
    assert (
        asked(server, status=400, prompt=IDS * max_seq)["error"]["code"]
        == "context_length_exceeded"
    )


def test_a_chat_keeps_its_last_tokens(server) -> None:
    fields = {"messages": MESSAGES, "return_token_ids": True, "max_tokens": 1}
    whole = asked(server, CHAT, **fields)["prompt_token_ids"]
    cut = asked(server, CHAT, **fields, truncate_prompt_tokens=4)
    assert cut["prompt_token_ids"] == whole[-4:]


def test_a_chat_beyond_the_context_is_cut_to_it(server) -> None:
    max_seq = server.http.get("/v1/models").json()["data"][0]["max_model_len"]
    messages = [{"role": "user", "content": QUESTION * max_seq}]
    answer = asked(server, CHAT, messages=messages, truncate_prompt_tokens=9, max_tokens=1)
    assert answer["usage"]["prompt_tokens"] == 9
    error = asked(server, CHAT, 400, messages=messages, max_tokens=1)["error"]
    assert error["code"] == "context_length_exceeded"


def test_echo_of_a_cut_prompt_is_what_was_kept(server) -> None:
    answer = asked(server, **{**ECHO, "max_tokens": 0}, truncate_prompt_tokens=2)
    [choice] = answer["choices"]
    assert choice["text"] == TOKENIZER.decode(IDS[-2:])
    check_lists(choice["logprobs"], IDS[-2:])


@pytest.mark.parametrize(
    ("spelled", "text", "offsets"),
    [
        ([b"a", b"b"], "ab", [0, 1]),
        ([b"<s>", b"a", b"b"], "ab", [0, 0, 1]),
        ([b"\xc3", b"\xa9", b"x"], "éx", [0, 0, 1]),
        ([b"\xff", b"x"], "�x", [0, 1]),
    ],
)
def test_places_of_tokens_that_the_text_does_not_show_or_only_in_part(
    spelled, text, offsets
) -> None:
    assert list(echoed_offsets(spelled.__getitem__, range(len(spelled)), text)) == offsets

"""What strangers' clients send, and what each interface makes of it."""

import json
import re
import time

import httpx
import pytest

from tests.server import raw
from tests.server.serving import ENDLESS, MODEL, QUESTION, ServerProcess

ASKED = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS = {
    "/v1/completions": {"prompt": QUESTION},
    "/v1/chat/completions": {"messages": ASKED},
    "/v1/responses": {"input": ASKED},
    "/v1/messages": {"messages": ASKED, "max_tokens": 16},
}
OPENAI = [path for path in PROMPTS if path != "/v1/messages"]
TOO_LONG = "The capital of France is. " * 2000
BEGUN = {"role": "assistant", "content": "The capital of Italy is"}
GOES_ON = [{"role": "user", "content": "Capital of Italy?"}, BEGUN]


def post(server, path, **fields):
    return server.http.post(path, json={**PROMPTS[path], **fields})


def error_of(answer, status=400):
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


def text_of(answer):
    """Return what an answer of any of the interfaces says."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    if "choices" in body:
        choice = body["choices"][0]
        return choice["text"] if "text" in choice else choice["message"]["content"]
    blocks = body["content"] if "content" in body else body["output"][-1]["content"]
    return "".join(block["text"] for block in blocks)


@pytest.mark.parametrize("path", OPENAI)
def test_a_seed_of_minus_one_is_none(server, path) -> None:
    fields = {"temperature": 2, "seed": -1}
    first = text_of(post(server, path, **fields))
    assert any(text_of(post(server, path, **fields)) != first for _ in range(40))
    same = {text_of(post(server, path, temperature=2, seed=-2)) for _ in range(3)}
    assert len(same) == 1


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize("seed", [0, -(2**63), 2**63, 2**64 - 1])
def test_any_other_seed_gives_one_text(server, path, seed) -> None:
    assert len({text_of(post(server, path, temperature=2, seed=seed)) for _ in range(2)}) == 1


@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("top_p", [0, 0.0, -0.0, 1e-300])
def test_a_top_p_of_zero_takes_the_best_token(server, path, top_p) -> None:
    best = text_of(post(server, path, temperature=0))
    for _ in range(4):
        assert text_of(post(server, path, temperature=1, top_p=top_p)) == best


@pytest.mark.parametrize("path", OPENAI)
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"2048": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 1, "2147483647": -1}}, "logit_bias"),
        ({"stop_token_ids": [2048]}, "stop_token_ids"),
        ({"stop_token_ids": [1, 2**31 - 1]}, "stop_token_ids"),
        ({"repetition_penalty": 1e-50}, "repetition_penalty"),
        (
            {
                "logit_bias": {str(token): 1 for token in range(1024)},
                "stop_token_ids": list(range(1024, 1056)),
                "min_tokens": 1,
            },
            "logit_bias",
        ),
    ],
)
def test_what_the_engine_would_refuse_names_the_field(server, path, fields, param) -> None:
    error = error_of(post(server, path, **fields))
    assert error["param"] == param
    assert param in error["message"]
    assert not re.search(r"bias_tokens|stop_tokens|num_", error["message"])


@pytest.mark.parametrize(
    ("path", "param"), list(zip(OPENAI, ("prompt", "messages", "input"), strict=True))
)
def test_a_prompt_beyond_the_context_names_its_field(server, path, param) -> None:
    long = TOO_LONG if param == "prompt" else [{"role": "user", "content": TOO_LONG}]
    assert error_of(post(server, path, **{param: long}))["param"] == param


@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("model", ["", None, MODEL])
def test_no_name_means_the_served_model(server, path, model) -> None:
    answer = post(server, path, model=model)
    assert "Paris" in text_of(answer)
    assert answer.json()["model"] == MODEL
    assert "Paris" in text_of(post(server, path))
    assert error_of(post(server, path, model=" "), 404)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/messages/count_tokens"])
def test_no_name_means_the_served_model_where_tokens_are_counted(server, path) -> None:
    for extra in ({}, {"model": ""}, {"model": None}):
        answer = server.http.post(path, json={"messages": ASKED, **extra})
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
@pytest.mark.parametrize("text", [TOO_LONG, "x" * 3_000_000])
def test_claude_code_reads_the_numbers_of_a_prompt_that_is_too_long(server, path, text) -> None:
    fields = {"messages": [{"role": "user", "content": text}]}
    if path == "/v1/messages":
        fields["max_tokens"] = 16
    message = error_of(server.http.post(path, json=fields))["message"]
    found = re.match(r"prompt is too long: (\d+) tokens > (\d+) maximum", message)
    assert found, message
    assert int(found[1]) > int(found[2]) == 4096


def test_a_prompt_that_is_counted_says_its_numbers_and_no_more(server) -> None:
    counted = server.http.post("/tokenize", json={"prompt": TOO_LONG}).json()["count"]
    message = error_of(post(server, "/v1/messages", system=TOO_LONG))["message"]
    found = re.fullmatch(r"prompt is too long: (\d+) tokens > 4096 maximum", message)
    assert counted < int(found[1]) < counted + 64


def usages(server, **fields):
    """Return the usage of a whole answer and that of the same answer as events."""
    asked = {"messages": ASKED, "max_tokens": 12, **fields}
    whole = server.http.post("/v1/chat/completions", json=asked).json()["usage"]
    streaming = {"stream": True, "stream_options": {"include_usage": True}}
    text = server.http.post("/v1/chat/completions", json={**asked, **streaming}).text
    *_, last, _ = [line for line in text.splitlines() if line.startswith("data: ")]
    return whole, json.loads(last.removeprefix("data: "))["usage"]


@pytest.mark.parametrize("extra", [{}, {"include_reasoning": False}, {"n": 3}])
def test_tokens_of_thoughts_are_counted_in_chat(server, extra) -> None:
    kwargs = {"chat_template_kwargs": {"enable_thinking": True}, "ignore_eos": True}
    for usage in usages(server, **kwargs, **extra):
        count = usage["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < count <= usage["completion_tokens"] == 12 * extra.get("n", 1)
        assert "cached_tokens" in usage["prompt_tokens_details"]
    for usage in usages(server, **extra):
        assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("text", ["Paris ", "Paris\n", "\t", "Paris\u00a0"])
@pytest.mark.parametrize("is_list", [True, False])
def test_a_beginning_may_not_end_in_white_space(server, text, is_list) -> None:
    content = [{"type": "text", "text": text}] if is_list else text
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        fields = {"messages": [*ASKED, {"role": "assistant", "content": content}]}
        if path == "/v1/messages":
            fields["max_tokens"] = 4
        error = error_of(server.http.post(path, json=fields))
        assert error["type"] == "invalid_request_error"
        expected = "messages: final assistant content cannot end with trailing whitespace"
        assert error["message"] == expected


def test_white_space_elsewhere_is_taken(server) -> None:
    earlier = [*ASKED, {"role": "assistant", "content": "Paris. "}, *ASKED]
    assert "Paris" in text_of(post(server, "/v1/messages", messages=earlier))
    empty = [*ASKED, {"role": "assistant", "content": ""}]
    assert post(server, "/v1/messages", messages=empty).status_code == 200


def test_a_final_message_is_continued(server) -> None:
    fields = {"messages": GOES_ON, "continue_final_message": True}
    answer = post(server, "/v1/chat/completions", **fields, add_generation_prompt=False)
    assert text_of(answer) == " Rome."
    assert text_of(post(server, "/v1/chat/completions", **fields)) == " Rome."
    echoed = post(server, "/v1/chat/completions", **fields, echo=True, n=2)
    assert text_of(echoed) == "The capital of Italy is Rome."
    text = post(server, "/v1/chat/completions", **fields, echo=True, stream=True).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if "{" in line]
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
    assert deltas[0]["role"] == "assistant"
    assert "".join(one.get("content") or "" for one in deltas) == text_of(echoed)


def test_a_continued_prompt_ends_in_the_message(server) -> None:
    for text in ("The capital of Italy is", "The capital of Italy is ", "", " \n"):
        fields = {"messages": [ASKED[0], {"role": "assistant", "content": text}]}
        asked = {**fields, "continue_final_message": True}
        ids = server.http.post("/tokenize", json=asked).json()["tokens"]
        prompt = server.http.post("/detokenize", json={"tokens": ids}).json()["prompt"]
        assert prompt.endswith(f"</think>{text}")


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": GOES_ON, "add_generation_prompt": True},
        {"messages": ASKED},
        {"messages": [{**BEGUN, "tool_calls": [{"function": {"name": "f"}}]}]},
    ],
)
def test_what_cannot_be_continued_is_refused(server, fields) -> None:
    asked = {**fields, "continue_final_message": True}
    error = error_of(post(server, "/v1/chat/completions", **asked))
    assert error["param"] == "continue_final_message"


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
UNKNOWN = [
    ({"colour": 1}, "colour"),
    ({"stream": True, "stream_options": {"colour": 1}}, "stream_options.colour"),
    ({"response_format": {"type": "text", "colour": {}}}, "response_format.colour"),
    ({"tools": [{**TOOL, "colour": 1}]}, "tools.0.colour"),
    (
        {"tools": [{**TOOL, "function": {**TOOL["function"], "colour": [1]}}]},
        "tools.0.function.colour",
    ),
    ({"thinking": {"type": "disabled", "colour": 0}}, "thinking.colour"),
    ({"structured_outputs": {"colour": "é"}}, "structured_outputs.colour"),
]
CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("fields", [fields for fields, _ in UNKNOWN])
def test_unknown_fields_are_ignored(server, fields) -> None:
    assert post(server, CHAT, **fields).status_code == 200


@pytest.mark.parametrize("path", PROMPTS)
def test_unknown_fields_are_ignored_by_all(server, path) -> None:
    assert "Paris" in text_of(post(server, path, colour={"a": [1]}, **{"x" * 5000: 1}))


def test_unknown_fields_are_named_once_with_their_request(start_server) -> None:
    server = start_server()
    for _ in range(3):
        fields = {"seldom": 1, "stream_options": {"rare": 1}, "x" * 5000: 1}
        assert post(server, CHAT, **fields).status_code == 200
    for number in range(400):
        server.http.post("/tokenize", json={"prompt": "x", f"field{number}": 1})
    lines = [one for one in server.events() if "unknown fields" in one["event"]]
    assert all(line["level"] == "warning" for line in lines)
    named = [name for line in lines for name in line["fields"]]
    assert named.count("seldom") == named.count("rare") == 1
    [line] = [line for line in lines if "seldom" in line["fields"]]
    assert (line["method"], line["path"]) == ("POST", CHAT)
    assert re.fullmatch(r"127\.0\.0\.1:\d+", line["client"])
    assert server.log().count(f'"request_id":"{line["request_id"]}"') >= 2
    assert len(named) == len(set(named)) <= 260
    assert max(map(len, named)) <= 64


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    running = ServerProcess(tmp_path_factory.mktemp("strict"), "--strict-fields")
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


@pytest.mark.parametrize(("fields", "param"), UNKNOWN)
def test_strict_fields_refuse_what_is_unknown(strict, fields, param) -> None:
    error = error_of(post(strict, CHAT, **fields))
    assert error["param"] == param
    assert "unknown field" in error["message"]


@pytest.mark.parametrize("path", PROMPTS)
def test_strict_fields_of_all(strict, path) -> None:
    answer = post(strict, path, colour=1)
    assert "colour: unknown field, which --strict-fields rejects" in error_of(answer)["message"]
    assert post(strict, path, colour=None).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"best_of": 2}),
        ("/v1/completions", {"suffix": "x"}),
        ("/v1/completions", {"max_completion_tokens": 3}),
        (CHAT, {"use_beam_search": True}),
        (CHAT, {"grammar": 'root ::= "x"'}),
        (CHAT, {"regex": "x"}),
        (CHAT, {"logits_processors": ["x"]}),
        ("/v1/responses", {"response_format": {"type": "json_object"}}),
        ("/v1/responses", {"guided_json": {}}),
        ("/v1/messages", {"stop": ["x"]}),
        ("/v1/messages", {"container": "x"}),
    ],
)
def test_known_fields_that_would_change_the_answer_are_refused(server, path, fields) -> None:
    answer = post(server, path, **fields)
    assert next(iter(fields)) in error_of(answer)["message"]


def seconds_and_events(server, path, **fields):
    """Yield (seconds since the request began, event or comment) of a stream."""
    began = time.monotonic()
    asked = {**PROMPTS[path], "stream": True, **fields}
    with httpx.stream("POST", f"{server.url}{path}", json=asked, timeout=30) as answer:
        assert answer.status_code == 200
        block = []
        for line in answer.iter_lines():
            if line:
                block.append(line)
                continue
            yield time.monotonic() - began, block
            block = []


@pytest.fixture(scope="module")
def busy(tmp_path_factory, endless_model):
    """A server whose only place is taken by an answer that takes minutes."""
    running = ServerProcess(
        tmp_path_factory.mktemp("busy"), *endless_model, "--max-batch", 1, "--max-queue", 8
    )
    with raw.connect(running) as connection:
        connection.sendall(raw.post("/v1/completions", ENDLESS))
        running.wait_for_gauges(live_requests=1)
        yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


OPENINGS = {
    "/v1/responses": ["response.created", "response.in_progress"],
    "/v1/messages": ["message_start", "ping"],
}
SIGNS = {"/v1/responses": "response.in_progress", "/v1/messages": "ping"}


@pytest.mark.parametrize("path", OPENINGS)
def test_a_stream_that_waits_says_so_by_events(busy, path) -> None:
    names, numbers, before = [], [], 0
    for seconds, block in seconds_and_events(busy, path):
        assert seconds - before < 5, names
        before = seconds
        if len(names) < 2:
            assert seconds < 2
        names.append(block[0].removeprefix("event: "))
        data = json.loads(block[1].removeprefix("data: "))
        assert data["type"] == names[-1]
        numbers.append(data.get("sequence_number"))
        if len(names) == 4:
            break
    assert names == [*OPENINGS[path], SIGNS[path], SIGNS[path]]
    if path == "/v1/responses":
        assert numbers == [0, 1, 2, 3]


@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
def test_other_streams_that_wait_carry_comments(busy, path) -> None:
    seconds, block = next(seconds_and_events(busy, path))
    assert block == [": keep-alive"]
    assert seconds < 5


def test_an_error_behind_the_opening_is_an_event(busy) -> None:
    found = seconds_and_events(busy, "/v1/responses", timeout_seconds=0.5)
    events = [block for _, block in found]
    assert [one[0] for one in events][-2:] == ["event: error", "event: response.failed"]


@pytest.mark.parametrize("path", OPENINGS)
def test_what_is_refused_before_has_a_status(busy, path) -> None:
    error_of(post(busy, path, stream=True, top_p=2))
    error_of(post(busy, path, stream=True, model="other"), 404)

"""Answers of `LLM` are those of `glm serve` for the same request, bit by bit."""

import asyncio

import pytest

from glm_engine import LLM, AsyncLLM, SamplingParams

QUESTION = "The capital of France is"
TALK = [{"role": "user", "content": "What is the capital of Austria?"}]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "size": {"type": "integer"}},
    "required": ["city", "size"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "parameters": {
            "type": "object",
            "properties": {"place": {"enum": ["Wien", "Graz"]}, "days": {"type": "integer"}},
            "required": ["place", "days"],
            "additionalProperties": False,
        },
        "name": "weather",
        "description": "The weather of a place.",
    },
}
CALLED = [
    {
        "role": "developer",
        "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
    },
    {"role": "user", "content": "Which is larger?", "name": "ann"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Both must be looked up.",
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"place": "Wien"}'},
            },
            {
                "id": "b",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"place": "Gr'},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": "2"},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
]
SAMPLED = {"temperature": 1.3, "seed": 11, "max_tokens": 24}
FIELDS = {
    "greedy": {"temperature": 0},
    "defaults with a seed": {"seed": 5},
    "no end": {"temperature": 0, "ignore_eos": True, "max_tokens": 40},
    "drawn": {**SAMPLED, "top_p": 0.9, "top_k": 40, "min_p": 0.01, "ignore_eos": True},
    "several": {**SAMPLED, "n": 3, "temperature": 2},
    "negative seed": {**SAMPLED, "seed": -7},
    "penalties": {
        **SAMPLED,
        "repetition_penalty": 1.2,
        "frequency_penalty": 0.4,
        "presence_penalty": -0.3,
    },
    "log-probabilities": {"temperature": 0, "logprobs": 3, "ignore_eos": True},
    "stop text": {**SAMPLED, "ignore_eos": True, "stop": ["ar", "o"], "max_tokens": 60},
    "stop text shown": {
        **SAMPLED,
        "ignore_eos": True,
        "stop": "a",
        "include_stop_str_in_output": True,
    },
    "stop token": {"temperature": 0, "stop_token_ids": [13]},
    "special tokens": {"temperature": 0, "ignore_eos": True, "skip_special_tokens": False},
    "least tokens": {"temperature": 0, "min_tokens": 9, "max_tokens": 12},
    "token rules": {
        **SAMPLED,
        "bad_words": ["Paris", "Wien"],
        "logit_bias": {"47": -30, "1447": 4},
    },
    "allowed tokens": {**SAMPLED, "allowed_token_ids": [13, 47, 292, 288], "max_tokens": 6},
    "regex": {**SAMPLED, "structured_outputs": {"regex": " (Rome|Oslo)[.!]{2,5}"}},
    "choice": {**SAMPLED, "structured_outputs": {"choice": [" Rome", " Oslo"]}},
    "schema": {**SAMPLED, "max_tokens": 60, "structured_outputs": {"json": CITY}},
    "schema with spaces": {
        **SAMPLED,
        "max_tokens": 60,
        "structured_outputs": {"json": CITY, "disable_any_whitespace": False},
    },
    "object": {**SAMPLED, "structured_outputs": {"json_object": True}},
    "grammar": {**SAMPLED, "structured_outputs": {"grammar": 'start: " " ("a" | "b")~3'}},
}
CHATS = {
    "plain": {},
    "thinking": {"thinking": True},
    "no thinking": {"thinking": False},
    "template variables": {"chat_template_kwargs": {"enable_thinking": True}},
    "tools offered": {"tools": [TOOL]},
    "a call must come": {"tools": [TOOL], "tool_choice": "required"},
    "the named call": {
        "tools": [TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "thinking": False,
    },
    "one call": {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    "tools turned off": {"tools": [TOOL], "tool_choice": "none"},
    "strict": {"tools": [{**TOOL, "function": {**TOOL["function"], "strict": True}}]},
    "after calls": {"messages": CALLED, "tools": [TOOL]},
    "going on": {
        "messages": [*TALK, {"role": "assistant", "content": "It is "}],
        "continue_final_message": True,
    },
    "without a turn": {"add_generation_prompt": False},
}


def params_of(fields: dict) -> SamplingParams:
    """The parameters with the fields of a request's JSON, whose keys are texts."""
    biases = {int(key): value for key, value in fields.get("logit_bias", {}).items()}
    return SamplingParams(**{**fields, **({"logit_bias": biases} if biases else {})})


def posted(server, path: str, body: dict) -> list[dict]:
    answer = server.http.post(path, json={"return_token_ids": True, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def seen(output) -> tuple:
    return output.index, output.text, output.token_ids, output.finish_reason


@pytest.mark.parametrize("name", FIELDS)
def test_completions(llm: LLM, server, name):
    fields = {"max_tokens": 16, **FIELDS[name]}
    [found] = llm.generate(QUESTION, params_of(fields))
    choices = posted(server, "/v1/completions", {"prompt": QUESTION, **fields})
    assert [seen(one) for one in found.outputs] == [
        (one["index"], one["text"], one["token_ids"], one["finish_reason"]) for one in choices
    ]
    assert found.prompt_token_ids == choices[0]["prompt_token_ids"]


def test_log_probabilities(llm: LLM, server):
    fields = {"max_tokens": 8, "ignore_eos": True, "temperature": 0, "logprobs": 4}
    [found] = llm.generate(QUESTION, SamplingParams(**fields, prompt_logprobs=2))
    body = {"prompt": QUESTION, **fields, "prompt_logprobs": 2}
    [choice] = posted(server, "/v1/completions", body)
    [output] = found.outputs
    rows = [
        place[token_id] for place, token_id in zip(output.logprobs, output.token_ids, strict=True)
    ]
    assert [one.logprob for one in rows] == choice["logprobs"]["token_logprobs"]
    assert output.cumulative_logprob == sum(choice["logprobs"]["token_logprobs"])
    best = [{one.decoded_token: one.logprob for one in place.values()} for place in output.logprobs]
    assert best == choice["logprobs"]["top_logprobs"]
    listed = [
        place and {str(key): vars_of(value) for key, value in place.items()}
        for place in found.prompt_logprobs
    ]
    assert listed == choice["prompt_logprobs"]


def vars_of(one) -> dict:
    return {name: getattr(one, name) for name in ("logprob", "rank", "decoded_token")}


def test_scores(llm: LLM, server):
    body = {"prompt": QUESTION, "echo": True, "logprobs": 0, "max_tokens": 0}
    [choice] = posted(server, "/v1/completions", body)
    [found] = llm.score(QUESTION)
    assert found.logprobs == choice["logprobs"]["token_logprobs"]
    assert llm.score(found.token_ids)[0].logprobs == found.logprobs
    assert found.sum(2, 4) == found.logprobs[2] + found.logprobs[3]


def without_ids(calls) -> list:
    return [(one["function"]["name"], one["function"]["arguments"]) for one in calls or ()]


def body_of(options: dict, fields: dict) -> dict:
    thinks = options.get("thinking")
    named = {} if thinks is None else {"thinking": {"type": "enabled" if thinks else "disabled"}}
    return {"messages": TALK, **options, **named, **fields}


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1.5, "seed": 3}])
def test_chats(llm: LLM, server, name, fields):
    options = {"messages": TALK, **CHATS[name]}
    fields = {**fields, "max_tokens": 48}
    messages = options.pop("messages")
    [found] = llm.chat(messages, SamplingParams(**fields), **options)
    [choice] = posted(server, "/v1/chat/completions", body_of(CHATS[name], fields))
    [output], message = found.outputs, choice["message"]
    assert output.token_ids == choice["token_ids"]
    assert output.content == message["content"]
    assert output.reasoning == message.get("reasoning_content")
    calls = [(one.name, one.arguments) for one in output.tool_calls]
    assert calls == without_ids(message.get("tool_calls"))
    assert output.finish_reason == choice["finish_reason"]
    if name in ("a call must come", "the named call", "one call"):
        assert output.tool_calls[0].parsed()["place"] in ("Wien", "Graz")


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"json": CITY}},
        {"structured_outputs": {"regex": "[a-c]{4}"}},
        {"stop": ["n"], "seed": 4},
        {"thinking_token_budget": 3},
        {"n": 2, "seed": 9},
    ],
)
@pytest.mark.parametrize("thinking", [True, False])
def test_fields_of_chats(llm: LLM, server, fields, thinking):
    fields = {"max_tokens": 40, "temperature": 1.2, "seed": 2, **fields}
    [found] = llm.chat(TALK, SamplingParams(**fields), thinking=thinking)
    body = body_of({"thinking": thinking}, fields)
    choices = posted(server, "/v1/chat/completions", body)
    for output, choice in zip(found.outputs, choices, strict=True):
        assert output.token_ids == choice["token_ids"]
        assert output.content == choice["message"]["content"]
        assert output.reasoning == choice["message"].get("reasoning_content")


def test_pieces_make_the_whole(llm: LLM):
    params = SamplingParams(seed=3, temperature=1.4, max_tokens=40, n=2)
    [whole] = llm.chat(TALK, params, tools=[TOOL], tool_choice="required")
    chunks = list(llm.stream_chat(TALK, params, tools=[TOOL], tool_choice="required"))
    for output in whole.outputs:
        own = [one for one in chunks if one.index == output.index]
        assert "".join(one.text for one in own) == output.text
        assert [token for one in own for token in one.token_ids] == output.token_ids
        assert "".join(one.content for one in own) == (output.content or "")
        pieces = [piece for one in own for piece in one.tool_calls]
        assert [piece.name for piece in pieces if piece.id] == [
            one.name for one in output.tool_calls
        ]
        for at, call in enumerate(output.tool_calls):
            assert "".join(one.arguments for one in pieces if one.index == at) == call.arguments
        assert [one.finish_reason for one in own][-1] == output.finish_reason
        assert own[-1].output.text == output.text


def test_an_event_loop_gives_the_same(llm: LLM):
    params = SamplingParams(seed=3, temperature=1.4, max_tokens=20)

    async def ask() -> tuple:
        async with AsyncLLM(device="cpu", num_threads=1, quiet=True) as other:
            outputs, talks, scores = await asyncio.gather(
                other.generate([QUESTION] * 3, params),
                other.chat(TALK, params),
                other.score(QUESTION),
            )
            pieces = [one.text async for one in other.stream(QUESTION, params)]
            contents = [one.content async for one in other.stream_chat(TALK, params)]
            return outputs, talks, scores, "".join(pieces), "".join(contents)

    outputs, talks, scores, text, content = asyncio.run(ask())
    [expected] = llm.generate(QUESTION, params)
    assert [one.outputs for one in outputs] == [expected.outputs] * 3
    assert text == expected.outputs[0].text
    assert talks[0].outputs == llm.chat(TALK, params)[0].outputs
    assert content == talks[0].outputs[0].content
    assert scores == llm.score(QUESTION)

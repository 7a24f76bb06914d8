"""/v1/responses through the official client, its answers read strictly."""

import json

import jsonschema
import pytest

from tests.server.openai.responses.validation import (
    check_order,
    read_events,
    read_response,
    told,
)
from tests.server.openai.test_constraints import CITY, ENDINGS, FORECAST, THINK_END, TOOL_CALL
from tests.server.serving import MODEL

PATH = "/v1/responses"
QUESTION = "What is the capital of France?"
ASKED = {"model": MODEL, "input": QUESTION, "temperature": 0}
PARAMETERS = FORECAST["function"]["parameters"]
TOOL = {"type": "function", "strict": None, **FORECAST["function"]}
OTHER = {**TOOL, "name": "other"}
NAMED = {"type": "function", "name": "forecast"}
THINKING = {"chat_template_kwargs": {"enable_thinking": True}}
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
FORMAT = {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}


def post(server, **fields):
    answer = server.http.post(PATH, json={**ASKED, **fields})
    assert answer.status_code == 200, answer.text
    return answer.text


def both(server, **fields):
    """Return the response that a stream and a whole answer agree on, both read strictly."""
    whole = read_response(post(server, **fields))
    events = read_events(post(server, stream=True, **fields))
    check_order(events)
    streamed = events[-1].response
    assert told(streamed.output) == told(whole.output)
    assert events[-1].type == f"response.{whole.status}"
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert streamed.usage.output_tokens_details == whole.usage.output_tokens_details
    return streamed


def after_a_thought(end_bias):
    """Return fields of a turn that begins in a thought, which wants to end it, or to call."""
    biases = dict.fromkeys(map(str, (*ENDINGS, TOOL_CALL)), 100) | {str(THINK_END): end_bias}
    return {**THINKING, "logit_bias": biases, "max_output_tokens": 200}


def test_a_text(server):
    response = both(server)
    assert response.output_text == "Paris."
    assert response.status == "completed"
    assert response.usage.input_tokens == 12
    assert response.usage.output_tokens == 5
    assert response.usage.total_tokens == 17


def test_the_request_is_told_again(server):
    fields = {
        "instructions": "Be brief.",
        "max_output_tokens": 7,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "prompt_cache_key": "k",
        "reasoning": {"effort": "low", "summary": "auto"},
        "safety_identifier": "s",
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [NAMED]},
        "tools": [TOOL, OTHER],
        "top_p": 0.5,
        "truncation": "disabled",
        "user": "u",
    }
    response = both(server, **fields, store=True, service_tier="auto").model_dump()
    for name, value in fields.items():
        if name == "tools":
            assert [tool["name"] for tool in response[name]] == ["forecast", "other"]
        elif name == "reasoning":
            assert response[name]["effort"] == "low"
        else:
            assert response[name] == value, name
    assert response["store"] is False
    assert response["previous_response_id"] is None
    assert response["id"].startswith("resp_")


def test_thinking(server):
    response = both(server, **THINKING, max_output_tokens=4)
    thought, *_ = response.output
    assert thought.type == "reasoning"
    assert thought.content[0].text
    assert response.usage.output_tokens_details.reasoning_tokens > 0
    off = both(server, **THINKING, reasoning={"effort": "none"})
    assert (off.output_text, off.usage.output_tokens_details.reasoning_tokens) == ("Paris.", 0)


def test_a_thought_that_is_cut(server):
    biases = dict.fromkeys(map(str, (*ENDINGS, THINK_END)), -100)
    fields = {**THINKING, "logit_bias": biases, "max_output_tokens": 5}
    response = both(server, **fields)
    [thought] = response.output
    assert (response.status, thought.status) == ("incomplete", "incomplete")
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens_details.reasoning_tokens <= 5


def test_cut_text(server):
    response = both(server, max_output_tokens=1)
    assert response.output[0].status == response.status == "incomplete"
    assert response.usage.output_tokens == 1


@pytest.mark.parametrize("thinks", [False, True])
def test_logprobs(server, thinks):
    response = both(server, **LOGPROBS, **(THINKING if thinks else {}), max_output_tokens=12)
    [message] = [item for item in response.output if item.type == "message"]
    [part] = message.content
    rows = part.logprobs
    assert "".join(row.token for row in rows) == part.text
    assert part.text == "Paris." or thinks
    for row in rows:
        assert row.top_logprobs[0].token == row.token
        assert row.top_logprobs[0].logprob == row.logprob > row.top_logprobs[1].logprob
    alone = both(server, include=LOGPROBS["include"]).output[0].content[0].logprobs
    assert [row.top_logprobs for row in alone] == [[]] * 4


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_that_is_asked_for(server, choice):
    fields = {"tools": [OTHER, TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    response = both(server, **fields)
    [call] = response.output
    assert (call.type, call.status, response.status) == (
        *("function_call", "completed", "completed"),
    )
    assert call.name == "forecast" or choice == "required"
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    items = [
        {"role": "user", "content": QUESTION},
        call.model_dump(),
        {"type": "function_call_output", "call_id": call.call_id, "output": "rain"},
    ]
    again = both(server, input=items, tools=[OTHER, TOOL], max_output_tokens=4)
    assert again.usage.input_tokens > response.usage.input_tokens


def test_several_calls(server):
    fields = {"tools": [TOOL], "tool_choice": "required", "max_output_tokens": 300}
    response = both(server, **fields, logit_bias={str(TOOL_CALL): 100})
    assert len(response.output) > 1
    assert {item.type for item in response.output} == {"function_call"}
    for item in response.output[:-1]:
        jsonschema.validate(json.loads(item.arguments), PARAMETERS)
        assert item.status == "completed"


def test_a_call_in_a_namespace(server):
    tools = [{"type": "namespace", "name": "sky", "description": "Weather.", "tools": [TOOL]}]
    one = {"tool_choice": "required", "parallel_tool_calls": False}
    [call] = both(server, tools=tools, **one).output
    assert (call.namespace, call.name) == ("sky", "forecast")
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_after_a_thought(server, choice):
    fields = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False}
    drawn = {"temperature": 1, "seed": 3}
    response = both(server, **fields, **drawn, **after_a_thought(9))
    *thoughts, call = response.output
    assert [item.type for item in thoughts] == ["reasoning"] * len(thoughts)
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    assert response.status == "completed"


def test_strict_tools_and_allowed_ones(server):
    strict = [{**tool, "strict": True} for tool in (TOOL, OTHER)]
    chosen = {"type": "allowed_tools", "mode": "required", "tools": [NAMED]}
    one = {"parallel_tool_calls": False, "max_output_tokens": 200}
    [call] = both(server, tools=strict, tool_choice=chosen, **one).output
    assert call.name == "forecast"
    biased = {"logit_bias": {str(TOOL_CALL): 100}, **one}
    [call] = both(server, tools=strict, **biased).output
    jsonschema.validate(json.loads(call.arguments), PARAMETERS)
    assert both(server, tools=[TOOL], tool_choice="none").output_text == "Paris."


@pytest.mark.parametrize("more", [{}, after_a_thought(100)])
def test_a_schema(server, more):
    response = both(server, text=FORMAT, **more)
    jsonschema.validate(json.loads(response.output_text), CITY)
    assert response.text.format.name == "city"


def test_any_object(server):
    fields = {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 400}
    response = both(server, **fields, temperature=1, seed=3)
    assert response.output_text.startswith("{")
    if response.status == "completed":
        assert isinstance(json.loads(response.output_text), dict)


def test_extras_that_chat_takes(server):
    assert both(server, stop="ris").output_text == "Pa"
    drawn = [both(server, temperature=1.5, seed=5).output_text for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert both(server, min_tokens=9, ignore_eos=True, max_output_tokens=9).usage.output_tokens == 9


def test_a_thought_goes_back_to_the_template(server):
    fields = {**THINKING, "include": ["reasoning.encrypted_content"], "max_output_tokens": 8}
    output = [item.model_dump() for item in both(server, **fields).output]
    assert output[0]["encrypted_content"]
    turns = [{"role": "user", "content": QUESTION}, *output, {"role": "user", "content": QUESTION}]
    assert both(server, input=turns).status == "completed"


def test_it_is_described_counted_and_logged(server):
    described = server.http.get("/openapi.json").json()["paths"]
    assert set(described[PATH]["post"]["responses"]) >= {"200", "400", "401", "429", "503"}
    allowed = server.http.options(f"{PATH}/one").headers["allow"]
    assert set(allowed.split(", ")) == {"GET", "DELETE"}
    post(server)
    metrics = server.http.get("/metrics").text
    assert f'glm_requests_total{{endpoint="{PATH}",outcome="finished"}}' in metrics
    assert f'"endpoint":"{PATH}","status":200' in server.log()

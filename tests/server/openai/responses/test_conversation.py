"""What the checkpoint's template gets of a request's input."""

import pydantic
import pytest

from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.openai.chat_messages import template_variables
from glm_engine.server.openai.responses.output_items import sealed
from glm_engine.server.openai.responses.response_fields import ResponsesRequest, client_names
from glm_engine.server.openai.responses.responses import offered_tools, template_messages

SUMMARY = [{"type": "summary_text", "text": "in short"}]


def fields_of(given, **more):
    return ResponsesRequest.model_validate({"model": "m", "input": given, **more})


def messages_of(*items, **more):
    return template_messages(fields_of(list(items), **more))


def user(content="go", **more):
    return {"role": "user", "content": content, **more}


def call(number, arguments='{"n": 1}'):
    names = {"id": f"fc_{number}", "call_id": f"c{number}", "name": "f", "status": "completed"}
    return {"type": "function_call", **names, "arguments": arguments}


def result(number, output="done"):
    return {"type": "function_call_output", "call_id": f"c{number}", "output": output}


def thought(text="hm", **more):
    parts = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": "rs_1", "summary": SUMMARY, "content": parts, **more}


def said(text, kind="output_text"):
    part = (
        {"type": "refusal", "refusal": text} if kind == "refusal" else {"type": kind, "text": text}
    )
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


def template_call(number, arguments):
    function = {"name": "f", "arguments": arguments}
    return {"id": f"c{number}", "type": "function", "function": function}


def test_a_text_and_instructions():
    expected = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "go"}]
    assert template_messages(fields_of("go", instructions="Be brief.")) == expected
    assert template_messages(fields_of("go")) == expected[1:]


def test_roles_and_parts():
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b", "x": {}}]
    assert messages_of(
        {"type": "message", "role": "developer", "content": "d"},
        {"role": "system", "content": parts, "status": "completed"},
        user(parts, type="message"),
        user("c"),
        said("e"),
        said("f", "refusal"),
        user(""),
    ) == [
        {"role": "system", "content": "d"},
        {"role": "system", "content": "ab"},
        {"role": "user", "content": "ab"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "ef"},
        {"role": "user", "content": ""},
    ]


def test_what_the_assistant_made_between_two_others_is_one_turn():
    assert messages_of(
        *(user(), thought(), said("Two."), call(1), call(2, "")),
        *(result(2, [{"type": "input_text", "text": "b"}]), result(1, "a")),
        *(thought("so"), said("Done.")),
    ) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "Two.",
            "reasoning_content": "hm",
            "tool_calls": [template_call(1, {"n": 1}), template_call(2, {})],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a"},
        {"role": "tool", "tool_call_id": "c2", "content": "b"},
        {"role": "assistant", "content": "Done.", "reasoning_content": "so"},
    ]


def test_results_that_come_one_by_one():
    messages = messages_of(user(), call(1), result(1), call(2), result(2))
    roles = [message["role"] for message in messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (thought("hm", encrypted_content=sealed("other")), "hm"),
        (thought(content=None, encrypted_content=sealed("größer\n")), "größer\n"),
        (thought(content=[], encrypted_content=sealed("x")), "x"),
        (thought(content=None, encrypted_content="gAAAAABmZW5j"), None),
        (thought(content=None, encrypted_content="glm-thought:?"), None),
        (thought(content=None), None),
    ],
)
def test_thoughts_that_come_back(item, expected):
    message = messages_of(user(), item, said("x"))[1]
    assert message.get("reasoning_content") == expected


def test_what_a_tool_answered_beside_text():
    image = {"type": "input_image", "image_url": "data:", "detail": "auto"}
    output = [{"type": "input_text", "text": "See: "}, image]
    told = messages_of(user(), call(1), result(1, output))[-1]["content"]
    assert told == "See: [input_image omitted: this model reads text only]"


def test_a_result_of_no_call():
    with pytest.raises(ApiError, match="no earlier function_call has call_id 'c2'") as caught:
        messages_of(user(), call(1), result(2))
    assert caught.value.param == "input.2.call_id"


def test_what_a_tool_said_without_a_call():
    """As Codex tells an agent its goal, before or behind the results of calls."""
    goal = {"type": "function_call_output", "name": "goal", "namespace": "agent", "output": "win"}
    told = {"role": "tool", "tool_call_id": None, "content": "win"}
    answered = {"role": "tool", "tool_call_id": "c1", "content": "done"}
    assert messages_of(user(), goal)[1:] == [told]
    for items in ((goal, result(1)), (result(1), goal)):
        assert messages_of(user(), call(1), *items)[2:] == [answered, told]
    with pytest.raises(ApiError, match="no earlier function_call has call_id None"):
        messages_of(user(), call(1), {**goal, "name": None})


@pytest.mark.parametrize("arguments", ["null", " null ", "", "{}", None])
def test_a_call_without_arguments(arguments):
    _, message = messages_of(user(), call(1, arguments))
    assert message["tool_calls"] == [template_call(1, {})]


def test_arguments_that_are_no_object():
    with pytest.raises(ApiError, match="expected a JSON object") as caught:
        messages_of(user(), call(1, "[1]"))
    assert caught.value.param == "input.1.arguments"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "expected a string or a list of items, got 5"),
        ([], "at least 1"),
        ([5], "item 0: expected an object, got 5"),
        ([user(), {"type": "item_reference", "id": "x"}], "item 1 is an item_reference"),
        ([{"type": "web_search_call", "id": "x"}], "item 0 has type 'web_search_call'"),
        ([{"type": [], "role": "user"}], r"item 0 has type \[\]"),
        (
            [user([{"type": "input_image"}])],
            "part 0 has type 'input_image'; supported types: input",
        ),
        ([user([{"type": "input_file"}])], "part 0 has type 'input_file'"),
        ([user(None)], "content"),
        ([user(role="tool")], "role"),
        ([{**call(1), "call_id": ""}], "call_id"),
        ([{"type": "function_call_output", "call_id": "c"}], "output"),
    ],
)
def test_what_is_no_input(given, message):
    with pytest.raises(pydantic.ValidationError, match=message):
        fields_of(given)


def function(name, **more):
    return {"type": "function", "name": name, **more}


def test_tools():
    schema = {"type": "object"}
    tools = [function("f", description="d", parameters=schema, strict=True, defer_loading=False)]
    tools.append(function("g", parameters=None, output_schema={}))
    listed = {"name": "f", "description": "d", "parameters": schema, "strict": True}
    expected = [{"type": "function", "function": one} for one in (listed, {"name": "g"})]
    for choice in (None, "auto", "required", function("g")):
        assert offered_tools(fields_of("x", tools=tools, tool_choice=choice)) == expected
    assert offered_tools(fields_of("x", tools=tools, tool_choice="none")) == []
    chosen = {"type": "allowed_tools", "mode": "auto", "tools": [function("g")]}
    assert offered_tools(fields_of("x", tools=tools, tool_choice=chosen)) == expected[1:]
    chosen["tools"] = [function("h")]
    with pytest.raises(ApiError, match="no tool is named 'h'") as caught:
        offered_tools(fields_of("x", tools=tools, tool_choice=chosen))
    assert caught.value.param == "tool_choice.tools"


def test_functions_of_namespaces_have_both_names():
    inside = [function("f", description="d"), function("g")]
    tools = [{"type": "namespace", "name": "m", "description": "x", "tools": inside}, function("f")]
    fields = fields_of("x", tools=tools)
    listed = [tool["function"] for tool in offered_tools(fields)]
    assert listed == [{"name": "m__f", "description": "d"}, {"name": "m__g"}, {"name": "f"}]
    expected = {"m__f": ("m", "f"), "m__g": ("m", "g"), "f": (None, "f")}
    assert client_names(fields.tools) == expected
    message = messages_of(user(), {**call(1), "namespace": "m"})[1]
    assert message["tool_calls"][0]["function"]["name"] == "m__f"


def test_too_many_functions_of_namespaces():
    inside = [function(f"f{number}") for number in range(200)]
    tools = [{"type": "namespace", "name": name, "tools": inside} for name in "ab"]
    with pytest.raises(ApiError, match="expected at most 256 functions, got 400"):
        offered_tools(fields_of("x", tools=tools))


def test_hints_reach_the_template():
    fields = fields_of("x", reasoning={"effort": "none"}, text={"verbosity": "low"})
    expected = {"verbosity": "low", "reasoning_effort": "none", "enable_thinking": False}
    assert template_variables(fields) == expected
    assert template_variables(fields_of("x", reasoning={"summary": "auto"})) == {}
    thinking = {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"a": 1}}
    assert template_variables(fields_of("x", **thinking)) == {"a": 1, "enable_thinking": True}

"""Messages and tools as callers write them, and as the checkpoint's template takes them."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from glm_engine.core.errors import BadInputError
from glm_engine.llm.fields import mapping_of, sequence_of, shown, text_of, wrong
from glm_engine.text.dialogue import whole_members

ROLES = ("system", "developer", "user", "assistant", "tool")
TEMPLATE_ROLES = {"developer": "system"}
PART_TYPES = ("text", "refusal")
MOST_NAME_CHARACTERS = 256
FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
Message = dict[str, object]


def template_messages(place: str, messages: object) -> list[Message]:
    """Return messages as a template takes them: contents as text, arguments as objects.

    Results of tools come in the order of the calls that they answer.
    """
    rows = sequence_of(place, messages)
    if not rows:
        raise BadInputError(f"{place}: expected at least one message, got none")
    made = [template_message(f"{place}[{at}]", one) for at, one in enumerate(rows)]
    return in_order_of_calls(made)


def template_message(place: str, message: object) -> Message:
    """Return one message as a template takes it."""
    stated = mapping_of(place, message)
    role = stated.get("role")
    if role not in ROLES:
        raise wrong(f"{place}.role", f"one of {', '.join(ROLES)}", role)
    made: Message = {"role": TEMPLATE_ROLES.get(str(role), role)}
    if stated.get("content") is None and role != "assistant":
        raise BadInputError(f"{place}.content: expected text in a message with role {role}")
    made["content"] = content_of(place, stated)
    for name in ("name", "tool_call_id"):
        if stated.get(name) is not None:
            made[name] = text_of(f"{place}.{name}", stated[name])
    thought = stated.get("reasoning_content") or stated.get("reasoning")
    if thought:
        made["reasoning_content"] = text_of(f"{place}.reasoning_content", thought)
    if stated.get("tool_calls") is not None:
        calls = sequence_of(f"{place}.tool_calls", stated["tool_calls"])
        made["tool_calls"] = [
            template_call(f"{place}.tool_calls[{at}]", call) for at, call in enumerate(calls)
        ]
    return made


def content_of(place: str, message: Mapping[str, object]) -> str:
    """Return the text of a message; a refusal is what the assistant said."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        found = content or ""
    else:
        parts = sequence_of(f"{place}.content", content)
        found = "".join(part_text(f"{place}.content[{at}]", part) for at, part in enumerate(parts))
    return found or text_of(f"{place}.refusal", message.get("refusal") or "")


def part_text(place: str, part: object) -> str:
    """Return the text of a part; a part that is no text is an error."""
    stated = mapping_of(place, part)
    kind = stated.get("type")
    if kind not in PART_TYPES:
        raise wrong(f"{place}.type", " or ".join(PART_TYPES), kind)
    return text_of(f"{place}.{kind}", stated.get(str(kind)))


def template_call(place: str, call: object) -> Message:
    """Return a call of an earlier answer, its arguments as an object."""
    stated = mapping_of(place, call)
    function = mapping_of(f"{place}.function", stated.get("function"))
    name = text_of(f"{place}.function.name", function.get("name"))
    arguments = call_arguments(f"{place}.function.arguments", function.get("arguments", "{}"))
    made: Message = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if stated.get("id") is not None:
        made["id"] = text_of(f"{place}.id", stated["id"])
    return made


def call_arguments(place: str, arguments: object) -> Mapping[str, object]:
    """Return the object that arguments are; of a call that was cut off, what was whole of it."""
    parsed = arguments
    if isinstance(arguments, str):
        parsed = whole_members(arguments)
    if parsed is None:
        return {}
    if not isinstance(parsed, Mapping):
        raise wrong(place, "a JSON object", arguments)
    return parsed


def in_order_of_calls(messages: Sequence[Message]) -> list[Message]:
    """Return messages with the results of one turn in the order of its calls.

    Templates render results without their ids. Where one names no call of the turn before, all
    stay as they came.
    """
    found: list[Message] = []
    numbers: dict[object, int] = {}
    for are_results, run in groupby(messages, lambda one: one["role"] == "tool"):
        rows = list(run)
        if not are_results:
            numbers = call_numbers(rows[-1].get("tool_calls"))
        elif all(one.get("tool_call_id") in numbers for one in rows):
            rows.sort(key=lambda one: numbers[one["tool_call_id"]])
        found += rows
    return found


def call_numbers(calls: object) -> dict[object, int]:
    """Return the place of each call of a turn by its id."""
    rows = calls if isinstance(calls, list) else []
    return {call["id"]: number for number, call in enumerate(rows) if call.get("id")}


def template_tools(tools: object) -> list[Message]:
    """Return tools in OpenAI's form as a template takes them, their fields in one order."""
    if tools is None:
        return []
    return [
        template_tool(f"tools[{at}]", one) for at, one in enumerate(sequence_of("tools", tools))
    ]


def template_tool(place: str, tool: object) -> Message:
    """Return one tool with the fields that templates know."""
    stated = mapping_of(place, tool)
    if stated.get("type") != "function":
        raise wrong(f"{place}.type", "'function'", stated.get("type"))
    function = mapping_of(f"{place}.function", stated.get("function"))
    name = text_of(f"{place}.function.name", function.get("name"))
    if not 1 <= len(name) <= MOST_NAME_CHARACTERS:
        raise BadInputError(
            f"{place}.function.name: expected 1 to {MOST_NAME_CHARACTERS} characters, got "
            f"{shown(name)}"
        )
    if function.get("parameters") is not None:
        mapping_of(f"{place}.function.parameters", function["parameters"])
    found = {one: function[one] for one in FUNCTION_FIELDS if function.get(one) is not None}
    return {"type": "function", "function": found}

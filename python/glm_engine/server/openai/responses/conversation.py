"""From items of a request's input to the messages that the checkpoint's template takes."""

import base64
from itertools import groupby

from glm_engine.server.errors import ApiError, quoted
from glm_engine.server.json_bounds import check_arguments
from glm_engine.server.openai.messages import TEMPLATE_ROLES, parsed_arguments
from glm_engine.server.openai.responses.tools import flat_name
from glm_engine.server.parts import text_of

SEALED = "glm-thought:"
ROLES = {"reasoning": "assistant", "function_call": "assistant", "function_call_output": "tool"}


def template_messages(fields):
    """Return the messages: instructions first, each tool's result one of its own.

    Neighbours that the assistant made are one turn of its.
    """
    check_arguments(argument_texts(fields.input))
    found = [{"role": "system", "content": fields.instructions}] if fields.instructions else []
    calls = {}
    for role, run in groupby(enumerate(fields.input), key=role_of):
        if role == "assistant":
            found.append(assistant_message(list(run), calls))
        elif role == "tool":
            found += result_messages(list(run), calls)
        else:
            found += [{"role": role, "content": text_of(item.content)} for _, item in run]
    return found


def argument_texts(items):
    return [item.arguments for item in items if item.type == "function_call" and item.arguments]


def role_of(numbered):
    """Return the role of the message that an item belongs to."""
    _, item = numbered
    role = item.role if item.type == "message" else ROLES[item.type]
    return TEMPLATE_ROLES.get(role, role)


def assistant_message(run, calls):
    """Return one message: its thoughts, its texts and its calls, each kind together.

    run: (number, item) of neighbours. calls: takes the number of each call by its id.
    """
    items = {"message": [], "reasoning": [], "function_call": []}
    for at, item in run:
        items[item.type].append((at, item))
    made = {
        "role": "assistant",
        "content": "".join(text_of(one.content) for _, one in items["message"]),
    }
    if thought := "".join(thought_of(one) for _, one in items["reasoning"]):
        made["reasoning_content"] = thought
    if items["function_call"]:
        made["tool_calls"] = [template_call(at, one) for at, one in items["function_call"]]
    calls.update((one.call_id, at) for at, one in items["function_call"])
    return made


def template_call(at, item):
    arguments = parsed_arguments(item.arguments, f"input.{at}.arguments")
    function = {"name": flat_name(item.namespace, item.name), "arguments": arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def result_messages(run, calls):
    """Return a message for each result, in the order of their calls: templates know no other."""
    for at, item in run:
        if item.call_id not in calls:
            path = f"input.{at}.call_id"
            message = f"{path}: no earlier function_call has call_id {quoted(item.call_id)}"
            raise ApiError(400, message, path)
    results = sorted((item for _, item in run), key=lambda item: calls[item.call_id])
    return [
        {"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}
        for item in results
    ]


def sealed(thought):
    """Return a thought as `encrypted_content`, for clients that send nothing else of it back."""
    return SEALED + base64.b64encode(thought.encode("utf-8", "surrogatepass")).decode()


def thought_of(item):
    """Return the text of a thought; none where only the service that enciphered it can read it."""
    if item.content:
        return text_of(item.content)
    _, _, text = (item.encrypted_content or "").partition(SEALED)
    try:
        return base64.b64decode(text, validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        return ""

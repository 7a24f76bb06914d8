"""From Anthropic's messages to those that the checkpoint's template takes."""

import re
from itertools import groupby, takewhile

from glm_engine.server.errors import ApiError, quoted
from glm_engine.server.parts import text_of

BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
FAILED = "The tool failed."


def template_tools(fields):
    """Return the tools as OpenAI's list; none where the client wants none used."""
    if fields.tool_choice and fields.tool_choice.type == "none":
        return []
    return [template_tool(tool) for tool in fields.tools or ()]


def template_tool(tool):
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    known = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": known}


def template_messages(fields):
    """Return the messages: the system's text first, each tool's result one of its own.

    Neighbours of one role are one turn, as with Anthropic's models.
    """
    found, asked = system_messages(fields.system), {}
    for role, run in groupby(enumerate(fields.messages), key=lambda item: item[1].role):
        if role == "user":
            found += user_messages(list(run), asked)
        elif role == "system":
            found += [{"role": "system", "content": text_of(one.content)} for _, one in run]
        else:
            found.append(assistant_message([block for _, one in run for block in one.content]))
            calls = found[-1].get("tool_calls", ())
            asked = {call["id"]: number for number, call in enumerate(calls)}
    return found


def system_messages(blocks):
    """Return the system's text as a message, if there is any.

    Claude Code's note to its own service is left out: it differs from request to request, so that
    no prompt would begin like the one before.
    """
    text = "".join(BILLING.sub("", block.text) for block in blocks or ())
    return [{"role": "system", "content": text}] if text else []


def assistant_message(content):
    """Return one message: its thoughts, its texts and its calls, each kind together."""
    blocks = {"text": [], "thinking": [], "redacted_thinking": [], "tool_use": []}
    for block in content:
        blocks[block.type].append(block)
    made = {"role": "assistant", "content": text_of(blocks["text"])}
    if blocks["thinking"]:
        made["reasoning_content"] = "".join(block.thinking for block in blocks["thinking"])
    if blocks["tool_use"]:
        made["tool_calls"] = [template_call(block) for block in blocks["tool_use"]]
    return made


def template_call(block):
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def user_messages(run, asked):
    """Return a message for each result of a call, then one for each message with text.

    run: (number, message) of neighbours. asked: the number of each call of the turn before, by
    its id; results stand in this order, by which alone templates tell them apart.
    """
    results, texts = [], []
    for at, message in run:
        found = [block for block in message.content if block.type == "tool_result"]
        check_results(found, f"messages.{at}.content", asked)
        results += found
        if len(found) < len(message.content) or not message.content:
            texts.append(text_of(block for block in message.content if block.type == "text"))
    results.sort(key=lambda block: asked[block.tool_use_id])
    told = [{"role": "user", "content": text} for text in texts]
    return [result_message(block) for block in results] + told


def check_results(results, path, asked):
    for block in results:
        if block.tool_use_id not in asked:
            message = (
                f"{path}: tool_use_id {quoted(block.tool_use_id)} does not match any tool_use "
                "block in the previous assistant message"
            )
            raise ApiError(400, message, path)


def result_message(block):
    text = text_of(block.content) or (FAILED if block.is_error else "")
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}


def continues_turn(fields):
    """Say whether the answer goes on with a last message of the assistant."""
    last = list(takewhile(lambda one: one.role == "assistant", reversed(fields.messages)))
    if not last:
        return False
    path = f"messages.{len(fields.messages) - 1}"
    if any(block.type != "text" for message in last for block in message.content):
        raise ApiError(400, f"{path}: expected only text blocks in a final assistant message", path)
    if thinks(fields):
        raise ApiError(400, f"{path}: disable thinking to continue a final assistant message", path)
    check_ending("".join(text_of(message.content) for message in reversed(last)))
    return True


def check_ending(text):
    """Refuse white space at the end, which the template would strip."""
    if text != text.rstrip():
        message = "messages: final assistant content cannot end with trailing whitespace"
        raise ApiError(400, message, "messages")


def thinks(fields, unasked=False):
    """Say whether the model thinks: `unasked` where the request does not say.

    Anthropic's models do not think unasked.
    """
    return fields.thinking.type != "disabled" if fields.thinking else unasked

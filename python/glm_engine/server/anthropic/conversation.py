"""From Anthropic's messages to those that the checkpoint's template takes."""

from itertools import groupby

from glm_engine.server.anthropic.blocks import text_of
from glm_engine.server.errors import ApiError


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
    """Return the messages: the system's text first, each tool's result one of its own."""
    system = text_of(fields.system)
    found = [{"role": "system", "content": system}] if system else []
    asked = {}
    for at, message in enumerate(fields.messages):
        if message.role == "user":
            found += user_messages(message, f"messages.{at}.content", asked)
        elif message.role == "system":
            found.append({"role": "system", "content": text_of(message.content)})
        else:
            found.append(assistant_message(message))
            calls = found[-1].get("tool_calls", ())
            asked = {call["id"]: number for number, call in enumerate(calls)}
    return found


def assistant_message(message):
    """Return one message: its thoughts, its texts and its calls, each kind together."""
    blocks = {"text": [], "thinking": [], "tool_use": []}
    for block in message.content:
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


def user_messages(message, path, asked):
    """Return a message for each run of texts and for each result of a call.

    asked: the number of each call of the turn before, by its id.
    """
    found = []
    for kind, run in groupby(message.content, key=lambda block: block.type):
        blocks = list(run)
        if kind == "text":
            found.append({"role": "user", "content": text_of(blocks)})
        else:
            found += [result_message(block) for block in in_order(blocks, path, asked)]
    return found or [{"role": "user", "content": ""}]


def in_order(results, path, asked):
    """Sort results as their calls stood: templates tell them apart by their order alone."""
    for block in results:
        if block.tool_use_id not in asked:
            message = f"{path}: tool_use_id {block.tool_use_id!r} is no call of the turn before"
            raise ApiError(400, message, path)
    return sorted(results, key=lambda block: asked[block.tool_use_id])


def result_message(block):
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text_of(block.content)}


def continues_turn(fields):
    """Say whether the answer goes on with a last message of the assistant."""
    last = fields.messages[-1]
    if last.role != "assistant":
        return False
    path = f"messages.{len(fields.messages) - 1}"
    if any(block.type != "text" for block in last.content):
        raise ApiError(400, f"{path}: a last message that is continued holds text alone", path)
    if thinks(fields):
        raise ApiError(400, f"{path}: an answer that thinks cannot be continued", path)
    return True


def thinks(fields):
    """Anthropic's models think only where they are asked to."""
    return bool(fields.thinking) and fields.thinking.type != "disabled"

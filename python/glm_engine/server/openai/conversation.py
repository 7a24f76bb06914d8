"""From chat fields to the text of a prompt, through the checkpoint's template."""

from functools import partial

from glm_engine.server.errors import ApiError
from glm_engine.server.openai.messages import template_messages

CHARACTERS_OF_PART = 8
RESERVED = frozenset({"messages", "tools", "documents", "add_generation_prompt"})
HINTS = ("reasoning_effort", "verbosity")


def template_variables(fields):
    """Return what the template gets beside messages and tools."""
    variables = dict(fields.chat_template_kwargs or {})
    reserved = RESERVED.intersection(variables)
    if reserved:
        name = min(reserved)
        raise ApiError(400, f"chat_template_kwargs may not set {name}", "chat_template_kwargs")
    if fields.thinking:
        variables["enable_thinking"] = fields.thinking.type != "disabled"
        if fields.thinking.clear_thinking is not None:
            variables["clear_thinking"] = fields.thinking.clear_thinking
    if fields.reasoning_effort == "none":
        variables["enable_thinking"] = False
    for name in HINTS:
        if (value := getattr(fields, name)) is not None:
            variables.setdefault(name, value)
    return variables


async def render(service, fields, tools):
    """Return the text of the prompt of a chat request."""
    messages, variables = template_messages(fields.messages), template_variables(fields)
    adds_turn = fields.add_generation_prompt is not False
    return await rendered(service, messages, adds_turn, tools, variables)


def num_parts(messages):
    """Return how many pieces a template goes through."""
    contents = [message.get("content") for message in messages]
    return sum(len(one) if isinstance(one, list) else 1 for one in contents)


async def encoded(service, text, param="messages"):
    """Return the ids of a rendered conversation; ApiError 400 where they cannot fit the context."""
    ids = await service.encoder.encode(text, add_special_tokens=False, param=param)
    service.encoder.check_ids(ids, service.vocab_size, param)
    return ids


async def rendered(service, messages, adds_turn, tools, variables, param="messages"):
    """Return the text of plain messages; ApiError 422 where the template takes offence."""
    if service.template is None:
        raise ApiError(422, "this checkpoint has no chat template", code="no_chat_template")
    try:
        render_plain = partial(service.template.render, tools=tools or None, **variables)
        size = CHARACTERS_OF_PART * (num_parts(messages) + len(tools))
        return await service.encoder.apart(size, render_plain, messages, adds_turn)
    except Exception as error:
        reason = error.__cause__ or error
        message = f"the chat template cannot render these messages: {reason}"
        raise ApiError(422, message, param, "template_error") from error

"""From chat fields to the text of a prompt, through the checkpoint's template."""

from glm_engine.server.errors import ApiError
from glm_engine.server.openai.messages import template_messages
from glm_engine.server.rendering import rendered

RESERVED = frozenset({"self", "messages", "tools", "documents", "add_generation_prompt"})
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

"""From chat fields to the text of a prompt, through the checkpoint's template."""

from types import MappingProxyType

from glm_engine.server.errors import ApiError
from glm_engine.server.openai.messages import argument_texts, template_messages
from glm_engine.server.rendering import rendered, total_length
from glm_engine.server.settings import ENABLE_THINKING, RESERVED_VARIABLES

NO_DEFAULTS = MappingProxyType({})
HINTS = ("reasoning_effort", "verbosity")


def template_variables(fields, defaults=NO_DEFAULTS):
    """Return what the template gets beside messages and tools.

    defaults: the server's, which whatever the request says wins over.
    """
    variables = dict(fields.chat_template_kwargs or {})
    reserved = RESERVED_VARIABLES.intersection(variables)
    if reserved:
        name = min(reserved)
        raise ApiError(400, f"chat_template_kwargs cannot set {name}", "chat_template_kwargs")
    if fields.reasoning_effort not in (None, "none"):
        defaults = {name: defaults[name] for name in defaults if name != ENABLE_THINKING}
    variables = {**defaults, **variables}
    if fields.thinking:
        variables[ENABLE_THINKING] = fields.thinking.type != "disabled"
        if fields.thinking.clear_thinking is not None:
            variables["clear_thinking"] = fields.thinking.clear_thinking
    if fields.reasoning_effort == "none":
        variables[ENABLE_THINKING] = False
    stated = fields.chat_template_kwargs or {}
    for name in HINTS:
        if (value := getattr(fields, name)) is not None:
            variables[name] = stated.get(name, value)
    return variables


async def render(service, fields, tools):
    """Return the text of the prompt of a chat request."""
    check_continued(fields)
    size = total_length(argument_texts(fields.messages))
    variables = template_variables(fields, service.settings.template_variables)
    messages = await service.encoder.apart(size, template_messages, fields.messages)
    adds_turn = fields.add_generation_prompt is not False and not fields.continue_final_message
    will_be_cut = getattr(fields, "truncate_prompt_tokens", None) is not None
    text = await rendered(service, messages, adds_turn, tools, variables, will_be_cut=will_be_cut)
    return text + lost_ending(text, messages[-1]) if fields.continue_final_message else text


def check_continued(fields):
    """Refuse to continue what is no text of the assistant's."""
    if not fields.continue_final_message:
        return
    name, last = "continue_final_message", fields.messages[-1]
    if fields.add_generation_prompt:
        message = f"{name}: cannot be used with add_generation_prompt; set one of them to false"
        raise ApiError(400, message, name)
    if last.role != "assistant":
        message = f"{name}: expected the last message to have role assistant, got {last.role}"
        raise ApiError(400, message, name)
    if last.tool_calls or last.function_call:
        raise ApiError(400, f"{name}: a message with tool calls cannot be continued", name)


def lost_ending(text, message):
    """Return the white space at the end of a last message that the template left out."""
    content = message["content"]
    return "" if text.endswith(content) else content[len(content.rstrip()) :]

"""From the fields of a request to the grammar that its answer must follow."""

import re
from itertools import groupby, takewhile

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from glm_engine.server.anthropic.message_events import (
    PREFIX,
    RESPONSES,
    MessagePresenter,
    MessageStream,
    MessageTurn,
    anthropic_body,
)
from glm_engine.server.anthropic.message_fields import CountRequest, MessagesRequest
from glm_engine.server.fields import text_of
from glm_engine.server.http.api_errors import BODIES_BY_PREFIX, ApiError, quoted
from glm_engine.server.http.json_bodies import JsonRoute
from glm_engine.server.http.streaming import WholeAnswer
from glm_engine.server.interface import Constraint, free_constraints, required_calls
from glm_engine.server.jobs import (
    Job,
    check_model,
    compiled,
    layout_of,
    make_choices,
    parser_of,
    thought_limit,
    token_rules,
)
from glm_engine.server.openai.request_fields import SamplingFields
from glm_engine.server.prompts import encoded, rendered
from glm_engine.server.server_settings import ENABLE_THINKING
from glm_engine.text.dialogue import opening_of

BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
FAILED = "The tool failed."


def constraints_of(fields, tools):
    """Return what a request asks for; JSON may come instead of calls."""
    choice, tools = fields.tool_choice, held_tools(fields, tools)
    required, form = call_constraints(choice, tools), format_constraints(fields)
    takes_one = bool(choice and choice.disable_parallel_tool_use)
    return required or free_constraints(form, tools, takes_one)


def held_tools(fields, tools):
    """Return the tools with what the client says of their strictness, which no template is told."""
    strict = {tool.name for tool in fields.tools or () if tool.strict}
    functions = [tool["function"] for tool in tools]
    return [
        {"type": "function", "function": {**one, "strict": one["name"] in strict}}
        for one in functions
    ]


def call_constraints(choice, tools):
    """Return what `tool_choice` asks for."""
    if choice is None or choice.type in ("auto", "none"):
        return []
    if choice.type == "tool" and choice.name is None:
        raise ApiError(400, "tool_choice.name: expected a tool name", "tool_choice.name")
    name = choice.name if choice.type == "tool" else None
    return required_calls(tools, name, takes_one=bool(choice.disable_parallel_tool_use))


def format_constraints(fields):
    """Return what the form of the answer asks for; `output_format` is its older place."""
    config = fields.output_config
    if config and config.format:
        return [schema_constraint("output_config.format.schema", config.format)]
    if fields.output_format:
        return [schema_constraint("output_format.schema", fields.output_format)]
    return []


def schema_constraint(param, form):
    return Constraint(param, "json_schema", (form.schema_,), {"strict": True, "name": param})


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


async def prompt_text(service, fields):
    """Return the text of the prompt and the tools in it."""
    tools = template_tools(fields)
    is_continued = continues_turn(fields)
    variables = dict(service.settings.template_variables)
    thinks_unasked = variables.get(ENABLE_THINKING, False) and not is_continued
    variables[ENABLE_THINKING] = thinks(fields, thinks_unasked)
    text = await rendered(service, template_messages(fields), not is_continued, tools, variables)
    return text, tools


def sampling_fields(fields):
    return SamplingFields(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        stop=fields.stop_sequences or [],
    )


def make_turn(fields, parser, is_cut_short):
    hides = fields.thinking and fields.thinking.display == "omitted"
    takes_one = bool(fields.tool_choice and fields.tool_choice.disable_parallel_tool_use)
    return MessageTurn(parser, not hides, takes_one, is_cut_short)


async def make_job(service, fields, visit):
    """Return the job of a request and the turn that its text is read into."""
    text, tools = await prompt_text(service, fields)
    constraints = constraints_of(fields, tools)
    prompt = await encoded(service, text)
    room = service.encoder.output_room(len(prompt), None, otherwise=None)
    max_tokens = min(fields.max_tokens, room)
    sampling = sampling_fields(fields)
    layout = layout_of(constraints, opening_of(text), continues_turn(fields))
    thought = thought_limit(
        service, fields, opening_of(text), continues_turn=continues_turn(fields)
    )
    rules = await token_rules(service, sampling, thought)
    choices = make_choices(service, sampling, visit, prompt, max_tokens, -1, rules, layout=layout)
    if grammar := await compiled(service, sampling, constraints):
        await service.guides.guide(choices, grammar, opening_of(text))
    visit.prompt_tokens = len(prompt)
    parser = parser_of(constraints, layout, tools)
    turn = make_turn(fields, parser, is_cut_short=max_tokens < fields.max_tokens)
    return Job(service, choices, visit), turn


def messages_router(service):
    BODIES_BY_PREFIX[PREFIX] = anthropic_body
    router = APIRouter(route_class=JsonRoute, responses=RESPONSES, tags=["Anthropic"])

    @router.post("/v1/messages")
    async def messages(fields: MessagesRequest, request: Request):
        """Answer a conversation."""
        check_model(service, fields.model)
        job, turn = await make_job(service, fields, request.scope["visit"])
        presenter = MessagePresenter(service, job, turn)
        job.submit()
        return (MessageStream if fields.stream else WholeAnswer)(service, job, presenter)

    @router.post("/v1/messages/count_tokens")
    async def count_tokens(fields: CountRequest):
        """Return how many tokens the prompt of a conversation has."""
        check_model(service, fields.model)
        text, _ = await prompt_text(service, fields)
        return JSONResponse({"input_tokens": len(await encoded(service, text))})

    return router

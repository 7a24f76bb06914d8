"""POST /v1/messages and /v1/messages/count_tokens."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from glm_engine.server.anthropic.message_events import (
    PREFIX,
    RESPONSES,
    MessagePresenter,
    MessageStream,
    MessageTurn,
    anthropic_body,
)
from glm_engine.server.anthropic.message_fields import (
    CountRequest,
    MessagesRequest,
    PromptFields,
)
from glm_engine.server.fields import text_of
from glm_engine.server.http.api_errors import BODIES_BY_PREFIX, ApiError, quoted
from glm_engine.server.http.middleware import JsonRoute
from glm_engine.server.jobs import Job, answer, check_model
from glm_engine.server.prompts import encoded_prompt
from glm_engine.text.conversation import (
    ChatPrompt,
    Constraint,
    Conversation,
    Json,
    OutputLimit,
    SamplingParams,
    ThinkingBudget,
    answer_constraints,
    format_constraints,
)
from glm_engine.text.template import ENABLE_THINKING

if TYPE_CHECKING:
    from glm_engine.server.anthropic.message_fields import (
        CustomTool,
        TextBlock,
        ToolResultBlock,
        ToolUseBlock,
    )
    from glm_engine.server.app import Service

BILLING = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")
FAILED = "The tool failed."


def constraints_of(fields: MessagesRequest, tools: list[Json]) -> list[Constraint]:
    """Return what a request asks for; JSON may come instead of calls."""
    choice = fields.tool_choice
    if choice and choice.type == "tool" and choice.name is None:
        raise ApiError(400, "tool_choice.name: expected a tool name", "tool_choice.name")
    return answer_constraints(
        schema_constraints(fields),
        held_tools(fields, tools),
        must_call=choice is not None and choice.type not in ("auto", "none"),
        name=choice.name if choice and choice.type == "tool" else None,
        takes_one=takes_one_call(fields),
    )


def held_tools(fields: MessagesRequest, tools: list[Json]) -> list[Json]:
    """Return the tools with what the client says of their strictness, which no template is told."""
    strict = {tool.name for tool in fields.tools or () if tool.strict}
    functions = [tool["function"] for tool in tools]
    return [
        {"type": "function", "function": {**one, "strict": one["name"] in strict}}
        for one in functions
    ]


def schema_constraints(fields: MessagesRequest) -> list[Constraint]:
    """Return what the form of the answer asks for; `output_format` is its older place."""
    config = fields.output_config
    form, param = fields.output_format, "output_format.schema"
    if config and config.format:
        form, param = config.format, "output_config.format.schema"
    return format_constraints(form.type, form.schema_, True, param, param) if form else []


def takes_one_call(fields: MessagesRequest) -> bool:
    return bool(fields.tool_choice and fields.tool_choice.disable_parallel_tool_use)


def template_tools(fields: PromptFields) -> list[Json]:
    """Return the tools as OpenAI's list; none where the client wants none used."""
    if fields.tool_choice and fields.tool_choice.type == "none":
        return []
    return [template_tool(tool) for tool in fields.tools or ()]


def template_tool(tool: "CustomTool") -> Json:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
    }
    known = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": known}


def template_messages(fields: PromptFields) -> list[Json]:
    """Return the messages: the system's text first, each tool's result one of its own.

    Neighbours of one role are one turn, as with Anthropic's models.
    """
    found, asked = system_messages(fields.system), dict[str, int]()
    messages: Iterable[tuple[int, Any]] = enumerate(fields.messages)
    for role, run in groupby(messages, key=lambda item: item[1].role):
        if role == "user":
            found += user_messages(list(run), asked)
        elif role == "system":
            found += [{"role": "system", "content": text_of(one.content)} for _, one in run]
        else:
            found.append(assistant_message([block for _, one in run for block in one.content]))
            calls = found[-1].get("tool_calls", ())
            asked = {call["id"]: number for number, call in enumerate(calls)}
    return found


def system_messages(blocks: "Sequence[TextBlock] | None") -> list[Json]:
    """Return the system's text as a message, if there is any.

    Claude Code's note to its own service is left out: it differs from request to request, so that
    no prompt would begin like the one before.
    """
    text = "".join(BILLING.sub("", block.text) for block in blocks or ())
    return [{"role": "system", "content": text}] if text else []


def assistant_message(content: Iterable[Any]) -> Json:
    """Return one message: its thoughts, its texts and its calls, each kind together."""
    blocks: dict[str, list[Any]] = {
        "text": [],
        "thinking": [],
        "redacted_thinking": [],
        "tool_use": [],
    }
    for block in content:
        blocks[block.type].append(block)
    made: Json = {"role": "assistant", "content": text_of(blocks["text"])}
    if blocks["thinking"]:
        made["reasoning_content"] = "".join(block.thinking for block in blocks["thinking"])
    if blocks["tool_use"]:
        made["tool_calls"] = [template_call(block) for block in blocks["tool_use"]]
    return made


def template_call(block: "ToolUseBlock") -> Json:
    function = {"name": block.name, "arguments": block.input}
    return {"id": block.id, "type": "function", "function": function}


def user_messages(run: list[tuple[int, Any]], asked: dict[str, int]) -> list[Json]:
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


def check_results(results: "Iterable[ToolResultBlock]", path: str, asked: dict[str, int]) -> None:
    for block in results:
        if block.tool_use_id not in asked:
            message = (
                f"{path}: tool_use_id {quoted(block.tool_use_id)} does not match any tool_use "
                "block in the previous assistant message"
            )
            raise ApiError(400, message, path)


def result_message(block: "ToolResultBlock") -> Json:
    text = text_of(block.content) or (FAILED if block.is_error else "")
    return {"role": "tool", "tool_call_id": block.tool_use_id, "content": text}


def continues_turn(fields: PromptFields) -> bool:
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


def check_ending(text: str) -> None:
    """Refuse white space at the end, which the template would strip."""
    if text != text.rstrip():
        message = "messages: final assistant content cannot end with trailing whitespace"
        raise ApiError(400, message, "messages")


def thinks(fields: PromptFields, unasked: bool = False) -> bool:
    """Say whether the model thinks: `unasked` where the request does not say.

    Anthropic's models do not think unasked.
    """
    return fields.thinking.type != "disabled" if fields.thinking else unasked


def chat_prompt(service: "Service", fields: PromptFields) -> ChatPrompt:
    """Return what the template gets of a request."""
    tools = template_tools(fields)
    is_continued = continues_turn(fields)
    variables = dict(service.settings.template_variables)
    thinks_unasked = variables.get(ENABLE_THINKING, False) and not is_continued
    variables[ENABLE_THINKING] = thinks(fields, thinks_unasked)
    messages = template_messages(fields)
    return ChatPrompt(messages, tools, variables, "messages", not is_continued, is_continued)


async def parse(service: "Service", fields: MessagesRequest) -> Conversation:
    """Return what a request asks for."""
    prompt = chat_prompt(service, fields)
    params = SamplingParams(
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        stop=fields.stop_sequences or (),
    )
    return Conversation(
        prompts=[prompt],
        limit=OutputLimit(fields.max_tokens, is_capped=True),
        sampling=params,
        constraints=constraints_of(fields, prompt.tools),
        budget=ThinkingBudget.of(fields),
    )


def present(service: "Service", job: Job, fields: MessagesRequest) -> MessagePresenter:
    hides = bool(fields.thinking and fields.thinking.display == "omitted")
    is_cut_short = job.choices[0].request.max_tokens < fields.max_tokens
    turn = MessageTurn(job.parsers[0], not hides, takes_one_call(fields), is_cut_short)
    return MessagePresenter(service, job, turn)


def messages_router(service: "Service") -> APIRouter:
    BODIES_BY_PREFIX[PREFIX] = anthropic_body
    router = APIRouter(route_class=JsonRoute, responses=RESPONSES, tags=["Anthropic"])

    @router.post("/v1/messages")
    async def messages(fields: MessagesRequest, request: Request) -> Response:
        """Answer a conversation."""
        record = request.scope["record"]
        return await answer(service, fields, record, parse, present, MessageStream)

    @router.post("/v1/messages/count_tokens")
    async def count_tokens(fields: CountRequest) -> Response:
        """Return how many tokens the prompt of a conversation has."""
        check_model(service, fields.model)
        found = await encoded_prompt(service, chat_prompt(service, fields))
        return JSONResponse({"input_tokens": len(found.ids)})

    return router

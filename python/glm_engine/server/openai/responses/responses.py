"""POST /v1/responses, and what becomes of requests for a response that was stored."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from glm_engine.server.choices import Turn
from glm_engine.server.fields import text_of
from glm_engine.server.http.api_errors import ApiError, named_fields, quoted
from glm_engine.server.http.json_bodies import check_arguments
from glm_engine.server.http.middleware import JsonRoute
from glm_engine.server.jobs import Job, answer
from glm_engine.server.openai.chat_messages import (
    allowed,
    template_variables,
)
from glm_engine.server.openai.model_endpoints import RESPONSES
from glm_engine.server.openai.responses.output_items import thought_of
from glm_engine.server.openai.responses.response_events import ResponsePresenter, ResponseStream
from glm_engine.server.openai.responses.response_fields import (
    LOGPROBS,
    CallItem,
    InputItem,
    ResponsesRequest,
    flat_name,
    functions_of,
)
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
from glm_engine.text.template import TEMPLATE_ROLES, call_arguments

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.openai.responses.response_fields import FunctionTool

FORMAT = "text.format"
ROLES = {"reasoning": "assistant", "function_call": "assistant", "function_call_output": "tool"}
SCHEMA_PARAM = f"{FORMAT}.schema"


def offered_tools(fields: ResponsesRequest) -> list[Json]:
    """Return the tools that the model is told of, as OpenAI's chat lists them."""
    choice = fields.tool_choice
    if choice == "none":
        return []
    tools = [template_tool(*one) for one in functions_of(fields.tools)]
    if isinstance(choice, str | None) or choice.type == "function":
        return tools
    return allowed({tool.name for tool in choice.tools}, tools, "tool_choice.tools")


def template_tool(namespace: str | None, tool: "FunctionTool") -> Json:
    function = tool.model_dump(exclude_none=True, exclude={"type"})
    return {"type": "function", "function": {**function, "name": flat_name(namespace, tool.name)}}


def constraints_of(fields: ResponsesRequest, tools: list[Json]) -> list[Constraint]:
    """Return what a request asks for."""
    choice, form = fields.tool_choice, fields.text and fields.text.format
    mode = choice if isinstance(choice, str | None) else getattr(choice, "mode", "required")
    return answer_constraints(
        format_constraints(form.type, form.schema_, form.strict, FORMAT, SCHEMA_PARAM)
        if form
        else [],
        tools,
        must_call=mode not in (None, "auto", "none"),
        name=getattr(choice, "name", None),
        takes_one=fields.parallel_tool_calls is False,
    )


def template_messages(fields: ResponsesRequest) -> list[Json]:
    """Return the messages: instructions first, each tool's result one of its own.

    Neighbours that the assistant made are one turn of its.
    """
    check_arguments(argument_texts(fields.input))
    found = [{"role": "system", "content": fields.instructions}] if fields.instructions else []
    calls: dict[str, int] = {}
    items: Iterable[tuple[int, Any]] = enumerate(fields.input)
    for role, run in groupby(items, key=role_of):
        if role == "assistant":
            found.append(assistant_message(list(run), calls))
        elif role == "tool":
            found += result_messages(list(run), calls)
        else:
            found += [{"role": role, "content": text_of(item.content)} for _, item in run]
    return found


def argument_texts(items: Iterable[InputItem]) -> list[str]:
    return [item.arguments for item in items if item.type == "function_call" and item.arguments]


def role_of(numbered: tuple[int, InputItem]) -> str:
    """Return the role of the message that an item belongs to."""
    _, item = numbered
    role = item.role if item.type == "message" else ROLES[item.type]
    return TEMPLATE_ROLES.get(role, role)


def assistant_message(run: Iterable[tuple[int, Any]], calls: dict[str, int]) -> Json:
    """Return one message: its thoughts, its texts and its calls, each kind together.

    run: (number, item) of neighbours. calls: takes the number of each call by its id.
    """
    items: dict[str, list[tuple[int, Any]]] = {
        "message": [],
        "reasoning": [],
        "function_call": [],
    }
    for at, item in run:
        items[item.type].append((at, item))
    made: Json = {
        "role": "assistant",
        "content": "".join(text_of(one.content) for _, one in items["message"]),
    }
    if thought := "".join(thought_of(one) for _, one in items["reasoning"]):
        made["reasoning_content"] = thought
    if items["function_call"]:
        made["tool_calls"] = [template_call(at, one) for at, one in items["function_call"]]
    calls.update((one.call_id, at) for at, one in items["function_call"])
    return made


def template_call(at: int, item: CallItem) -> Json:
    with named_fields():
        arguments = call_arguments(f"input[{at}].arguments", item.arguments)
    function = {"name": flat_name(item.namespace, item.name), "arguments": arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def result_messages(run: Sequence[tuple[int, Any]], calls: Mapping[str, int]) -> list[Json]:
    """Return a message for each result, in the order of their calls: templates know no other.

    What a tool said without a call comes last.
    """
    for at, item in run:
        is_uncalled = item.call_id is None and item.name
        if not is_uncalled and item.call_id not in calls:
            path = f"input.{at}.call_id"
            message = f"{path}: no earlier function_call has call_id {quoted(item.call_id)}"
            raise ApiError(400, message, path)
    results = sorted(run, key=lambda numbered: calls.get(numbered[1].call_id, numbered[0]))
    return [
        {"role": "tool", "tool_call_id": item.call_id, "content": text_of(item.output)}
        for _, item in results
    ]


def num_logprobs(fields: ResponsesRequest) -> int:
    """Return how many alternatives to list, -1 for no log-probabilities at all."""
    if fields.includes(LOGPROBS):
        return fields.top_logprobs or 0
    if fields.top_logprobs:
        raise ApiError(400, f"top_logprobs requires {LOGPROBS!r} in include", "top_logprobs")
    return -1


async def parse(service: "Service", fields: ResponsesRequest) -> Conversation:
    """Return what a request asks for."""
    tools = offered_tools(fields)
    constraints = constraints_of(fields, tools)
    size = sum(map(len, argument_texts(fields.input)))
    variables = template_variables(fields, service.settings.template_variables)
    messages = await service.encoder.apart(size, template_messages, fields)
    return Conversation(
        prompts=[ChatPrompt(messages, tools, variables, "input")],
        limit=OutputLimit(fields.max_output_tokens, "max_output_tokens"),
        sampling=SamplingParams.of(fields),
        constraints=constraints,
        budget=ThinkingBudget.of(fields, fields.reasoning_effort),
        num_logprobs=num_logprobs(fields),
    )


def present(service: "Service", job: Job, fields: ResponsesRequest) -> ResponsePresenter:
    turn = Turn(job.parsers[0], takes_one_call=fields.parallel_tool_calls is False)
    return ResponsePresenter(service, job, fields, turn)


def responses_router(service: "Service") -> APIRouter:
    router = APIRouter(route_class=JsonRoute, responses=RESPONSES, tags=["OpenAI"])

    @router.post("/v1/responses")
    async def respond(fields: ResponsesRequest, request: Request) -> Response:
        """Answer a conversation."""
        record = request.scope["record"]
        return await answer(service, fields, record, parse, present, ResponseStream)

    @router.api_route(
        "/v1/responses/{response_id}", methods=["GET", "DELETE"], include_in_schema=False
    )
    async def refuse_stored(response_id: str) -> Response:
        """Say that nothing is stored."""
        message = f"response {quoted(response_id)} not found: this server does not store responses"
        raise ApiError(404, message, "response_id", "response_not_found")

    return router

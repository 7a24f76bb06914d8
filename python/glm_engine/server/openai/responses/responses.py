"""POST /v1/responses, and what becomes of requests for a response that was stored."""

from fastapi import APIRouter, Request

from glm_engine.server.constraints import compiled, layout_of, parser_of
from glm_engine.server.errors import ApiError, quoted
from glm_engine.server.generation import Job
from glm_engine.server.limits import JsonRoute
from glm_engine.server.openai.answers import RESPONSES
from glm_engine.server.openai.conversation import template_variables
from glm_engine.server.openai.responses.answers import ResponsePresenter, ResponseStream
from glm_engine.server.openai.responses.constraints import constraints_of
from glm_engine.server.openai.responses.conversation import argument_texts, template_messages
from glm_engine.server.openai.responses.fields import LOGPROBS, ResponsesRequest
from glm_engine.server.openai.responses.tools import offered_tools
from glm_engine.server.rendering import encoded, rendered, total_length
from glm_engine.server.requests import check_model, make_choices, value_or
from glm_engine.server.streaming import WholeAnswer
from glm_engine.server.thoughts import thought_limit
from glm_engine.server.token_rules import token_rules
from glm_engine.server.turn import Turn
from glm_engine.text.dialogue import opening_of

PARAM = "input"


def num_logprobs(fields):
    """Return how many alternatives to list, -1 for no log-probabilities at all."""
    if fields.includes(LOGPROBS):
        return value_or(fields.top_logprobs, 0)
    if fields.top_logprobs:
        raise ApiError(400, f"top_logprobs requires {LOGPROBS!r} in include", "top_logprobs")
    return -1


async def make_job(service, fields, visit):
    """Return the job of a request and the turn that its text is read into."""
    tools = offered_tools(fields)
    constraints = constraints_of(fields, tools)
    size = total_length(argument_texts(fields.input))
    variables = template_variables(fields, service.settings.template_variables)
    messages = await service.encoder.apart(size, template_messages, fields)
    text = await rendered(service, messages, True, tools, variables, PARAM)
    prompt = await encoded(service, text, PARAM)
    room = service.encoder.output_room(
        len(prompt), fields.max_output_tokens, None, PARAM, "max_output_tokens"
    )
    opening = opening_of(text)
    layout = layout_of(constraints, opening)
    thought = thought_limit(service, fields, opening, fields.reasoning_effort)
    rules = await token_rules(service, fields, thought)
    choices = make_choices(
        service, fields, visit, prompt, room, num_logprobs(fields), rules, layout=layout
    )
    visit.prompt_tokens = len(prompt)
    if grammar := await compiled(service, fields, constraints):
        await service.guides.guide(choices, grammar, opening)
    parser = parser_of(constraints, layout, tools)
    turn = Turn(parser, takes_one_call=fields.parallel_tool_calls is False)
    return Job(service, choices, visit), turn


def responses_router(service):
    router = APIRouter(route_class=JsonRoute, responses=RESPONSES, tags=["OpenAI"])

    @router.post("/v1/responses")
    async def respond(fields: ResponsesRequest, request: Request):
        """Answer a conversation."""
        check_model(service, fields.model)
        job, turn = await make_job(service, fields, request.scope["visit"])
        presenter = ResponsePresenter(service, job, fields, turn)
        job.submit()
        return (ResponseStream if fields.stream else WholeAnswer)(service, job, presenter)

    @router.api_route(
        "/v1/responses/{response_id}", methods=["GET", "DELETE"], include_in_schema=False
    )
    async def refuse_stored(response_id: str):
        """Say that nothing is stored."""
        message = f"response {quoted(response_id)} not found: this server does not store responses"
        raise ApiError(404, message, "response_id", "response_not_found")

    return router

"""POST /v1/messages and /v1/messages/count_tokens."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from glm_engine.server.anthropic.answers import MessagePresenter, MessageStream
from glm_engine.server.anthropic.constraints import constraints_of
from glm_engine.server.anthropic.conversation import (
    continues_turn,
    template_messages,
    template_tools,
    thinks,
)
from glm_engine.server.anthropic.errors import PREFIX, RESPONSES, anthropic_body
from glm_engine.server.anthropic.fields import CountRequest, MessagesRequest
from glm_engine.server.anthropic.turn import MessageTurn
from glm_engine.server.constraints import compiled, layout_of, parser_of
from glm_engine.server.errors import BODIES_BY_PREFIX
from glm_engine.server.fields import SamplingFields
from glm_engine.server.generation import Job
from glm_engine.server.limits import JsonRoute
from glm_engine.server.rendering import encoded, rendered
from glm_engine.server.requests import check_model, make_choices
from glm_engine.server.settings import ENABLE_THINKING
from glm_engine.server.streaming import WholeAnswer
from glm_engine.server.thoughts import thought_limit
from glm_engine.server.token_rules import token_rules
from glm_engine.text.dialogue import opening_of


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

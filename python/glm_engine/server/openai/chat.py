"""POST /v1/chat/completions."""

from fastapi import APIRouter, Request

from glm_engine.server.constraints import compiled, layout_of, parser_of
from glm_engine.server.errors import ApiError
from glm_engine.server.generation import Job
from glm_engine.server.limits import JsonRoute
from glm_engine.server.openai.answers import RESPONSES
from glm_engine.server.openai.chat_answers import ChatPresenter
from glm_engine.server.openai.chat_fields import ChatRequest
from glm_engine.server.openai.constraints import chat_constraints
from glm_engine.server.openai.conversation import render
from glm_engine.server.openai.messages import text_of_content
from glm_engine.server.openai.prediction import prediction_tokens
from glm_engine.server.openai.prompt_fields import (
    hold_prompt_logprobs,
    num_kept,
    num_prompt_logprobs,
)
from glm_engine.server.openai.tool_choice import offered_tools
from glm_engine.server.rendering import encoded
from glm_engine.server.requests import check_count, check_model, make_choices, value_or
from glm_engine.server.streaming import EventStream, WholeAnswer
from glm_engine.server.thoughts import thought_limit
from glm_engine.server.token_rules import token_rules
from glm_engine.server.turn import Turn
from glm_engine.text.dialogue import opening_of


def num_logprobs(fields):
    """Return how many alternatives to list, -1 for no log-probabilities at all."""
    if fields.top_logprobs and not fields.logprobs:
        raise ApiError(400, "top_logprobs requires logprobs to be true", "top_logprobs")
    return value_or(fields.top_logprobs, 0) if fields.logprobs else -1


async def make_job(service, fields, visit):
    """Return the job of a conversation, and the turns that its choices are read into."""
    check_count(service, 1, fields.n)
    tools = offered_tools(fields)
    constraints = chat_constraints(fields, tools)
    text = await render(service, fields, tools)
    limit = "max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens"
    wanted = getattr(fields, limit)
    prompt = await encoded(service, text, num_kept=num_kept(service, fields, value_or(wanted, 1)))
    room = service.encoder.output_room(len(prompt), wanted, otherwise=None, limit=limit)
    opening = opening_of(text)
    layout = layout_of(constraints, opening, bool(fields.continue_final_message))
    thought = thought_limit(
        service,
        fields,
        opening,
        fields.reasoning_effort,
        continues_turn=bool(fields.continue_final_message),
    )
    rules = await token_rules(service, fields, thought)
    rules["prediction_tokens"] = await prediction_tokens(service, fields.prediction)
    choices = make_choices(
        service, fields, visit, prompt, room, num_logprobs(fields), rules, layout=layout
    )
    if (num_best := num_prompt_logprobs(fields)) >= 0:
        choices[0].list_prompt(num_best)
        hold_prompt_logprobs(service, fields, len(prompt), num_best)
    visit.prompt_tokens = len(prompt)
    if grammar := await compiled(service, fields, constraints):
        await service.guides.guide(choices, grammar, opening)
    turns = [make_turn(fields, parser_of(constraints, layout, tools)) for _ in choices]
    return Job(service, choices, visit), turns


def echoed(fields):
    """Return the text that stands before each answer: the message that it goes on with."""
    last = fields.messages[-1]
    return text_of_content(last) if fields.echo and last.role == "assistant" else ""


def make_turn(fields, parser):
    shows_reasoning = fields.include_reasoning is not False
    return Turn(parser, shows_reasoning, takes_one_call=fields.parallel_tool_calls is False)


def chat_router(service):
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/chat/completions", responses=RESPONSES, tags=["OpenAI"])
    async def chat(fields: ChatRequest, request: Request):
        """Answer a conversation."""
        check_model(service, fields.model)
        job, turns = await make_job(service, fields, request.scope["visit"])
        presenter = ChatPresenter(service, job, fields, turns, echoed(fields))
        job.submit()
        return (EventStream if fields.stream else WholeAnswer)(service, job, presenter)

    return router

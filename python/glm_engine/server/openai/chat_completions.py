"""POST /v1/chat/completions."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BeforeValidator

from glm_engine.server.choices import Turn, deltas_of
from glm_engine.server.fields import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    StrictModel,
    check_type,
    list_of,
    only,
    text_of,
    whole,
    wrong_kind,
)
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.json_bodies import JsonRoute
from glm_engine.server.http.streaming import EventStream, LongList, WholeAnswer
from glm_engine.server.interface import free_constraints, required_calls
from glm_engine.server.jobs import (
    Job,
    check_count,
    check_model,
    compiled,
    layout_of,
    make_choices,
    parser_of,
    thought_limit,
    token_rules,
    value_or,
)
from glm_engine.server.openai.answer_events import (
    Answer,
    EventWriter,
    TokenLists,
    chat_entries,
    chat_usage_of,
    finish_reason,
    message_delta,
)
from glm_engine.server.openai.chat_messages import (
    MAX_PARTS,
    Budget,
    ConversationFields,
    NamedTool,
    TextPart,
    ToolChoice,
    mode_of,
    offered_tools,
    render,
    text_of_content,
)
from glm_engine.server.openai.model_endpoints import RESPONSES
from glm_engine.server.openai.request_fields import (
    RESPONSE_FORMAT,
    ConstraintFields,
    PromptFields,
    SamplingFields,
    form_constraints,
    hold_prompt_logprobs,
    num_kept,
    num_prompt_logprobs,
    spaced,
)
from glm_engine.server.prompts import encoded
from glm_engine.text.dialogue import opening_of

FIELD = "prediction"


def check_content(value):
    """Name what is no text."""
    if not isinstance(value, str | list):
        raise wrong_kind("a string or a list of parts", value)
    if isinstance(value, list):
        for at, part in enumerate(value):
            check_type(f"part {at}", part, ("text",))
    return value


class Prediction(StrictModel):
    type: Literal["content"]
    content: Annotated[str | list_of(TextPart, MAX_PARTS), BeforeValidator(check_content)]

    @property
    def text(self):
        return self.content if isinstance(self.content, str) else text_of(self.content)


async def prediction_tokens(service, prediction):
    """Return the tokens of the expected text; none where the engine copies no drafts."""
    if prediction is None or not service.looks_up:
        return ()
    return await service.encoder.encode_beginning(prediction.text, service.vocab_size, FIELD)


class ChatRequest(PromptFields, SamplingFields, ConversationFields, ConstraintFields):
    thinking_budget: Budget | None = None
    thinking_token_budget: Budget | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    logprobs: bool | None = False
    top_logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    max_completion_tokens: whole(ge=1, le=MAX_TOKENS) | None = None
    include_reasoning: bool | None = True
    separate_reasoning: only(True) = None
    stream_reasoning: only(True) = None
    prediction: Prediction | None = None
    echo: bool | None = False
    modalities: only(["text"]) = None
    audio: only() = None
    moderation: only() = None
    functions: only([]) = None
    function_call: only("none", "auto") = None
    web_search_options: only() = None


def call_constraints(fields, tools):
    """Return what `tool_choice` asks for."""
    chosen = mode_of(fields.tool_choice)
    if chosen in ("auto", "none"):
        return []
    name = chosen.function.name if isinstance(chosen, NamedTool) else None
    return required_calls(tools, name, takes_one=fields.parallel_tool_calls is False)


def chat_constraints(fields, tools):
    """Return what a chat request asks for.

    Where nothing but calls may come, `response_format` has nothing to say.
    """
    required, form = call_constraints(fields, tools), form_constraints(fields)
    if required:
        found = required + [one for one in form if not one.param.startswith(RESPONSE_FORMAT)]
    else:
        found = free_constraints(form, tools, takes_one=fields.parallel_tool_calls is False)
    return spaced(fields.structured_outputs, found)


class ChatPresenter:
    """The events or the body of a chat answer; `echo` comes before what each choice says."""

    def __init__(self, service, job, fields, turns, echo=""):
        self.service = service
        self.job = job
        kind = "chat.completion.chunk" if fields.stream else "chat.completion"
        count = partial(chat_usage_of, job, turns, fields.prediction is not None)
        self.writer = EventWriter(service, job, fields, "chatcmpl", kind, b"delta", count)
        self.closing = self.writer.closing
        self.wants_logprobs = bool(fields.logprobs)
        self.turns = turns
        self.echo = echo
        self.listed = TokenLists(service, job, fields)
        self.answers = [Answer(echo) for _ in turns]
        self.has_begun = [False] * len(turns)

    def event(self, choice, piece):
        """Return the server-sent event of a piece; empty where it says nothing."""
        turn, index = self.turns[choice.index], choice.index
        delta = message_delta(deltas_of(self.job, turn, choice, piece))
        of_choice, of_event = self.listed.of_piece(piece), {}
        if not (delta or piece.logprobs or piece.finish_reason or any(of_choice.values())):
            return b""
        if not any(self.has_begun):
            of_event = self.listed.of_prompt(choice)
        if not self.has_begun[index]:
            self.has_begun[index] = True
            content = self.echo + delta.get("content", "")
            delta = {"role": "assistant", **delta, "content": content}
        rows, reason = self.logprobs(piece.logprobs), finish_reason(turn, piece)
        return self.writer.event(index, delta, rows, reason, of_choice, of_event)

    def logprobs(self, rows):
        if not self.wants_logprobs:
            return None
        return {"content": list(chat_entries(self.service, rows)), "refusal": None}

    def take(self, choice, piece):
        turn = self.turns[choice.index]
        delta = message_delta(deltas_of(self.job, turn, choice, piece))
        answer = self.answers[choice.index]
        self.listed.take(choice, piece)
        answer.take(delta, finish_reason(turn, piece))
        answer.rows.extend(piece.logprobs)

    def choice_body(self, choice):
        answer, entries = self.answers[choice.index], None
        if self.wants_logprobs:
            content = LongList(chat_entries(self.service, answer.rows))
            entries = {"content": content, "refusal": None}
        return {
            "index": choice.index,
            "message": answer.message(self.turns[choice.index].num_calls),
            "logprobs": entries,
            "finish_reason": answer.finish_reason,
            **self.listed.of_choice(choice),
        }

    def body(self):
        choices = [self.choice_body(choice) for choice in self.job.choices]
        return self.writer.body(choices, **self.listed.of_prompt(self.job.choices[0]))


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

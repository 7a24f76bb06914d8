"""POST /v1/chat/completions."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BeforeValidator
from starlette.responses import Response

from glm_engine.server.choices import Rows, Turn, deltas_of
from glm_engine.server.fields import (
    StrictModel,
    items,
    only,
    text_of,
    whole,
)
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.middleware import JsonRoute
from glm_engine.server.http.streaming import LongList
from glm_engine.server.jobs import Job, answer, check_count
from glm_engine.server.openai.answer_events import (
    Answer,
    AnswerPresenter,
    EventWriter,
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
    chat_prompt,
    check_parts,
    mode_of,
    offered_tools,
)
from glm_engine.server.openai.model_endpoints import RESPONSES
from glm_engine.server.openai.request_fields import (
    ConstraintFields,
    PromptFields,
    disables_spaces,
    prompt_logprobs_of,
    response_format_constraints,
    structured_constraints,
)
from glm_engine.text.conversation import (
    MAX_LOGPROBS,
    MAX_TOKENS,
    Constraint,
    Conversation,
    Json,
    OutputLimit,
    SamplingParams,
    ThinkingBudget,
    answer_constraints,
    spaced,
)
from glm_engine.text.template import content_of

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.choices import Choice, TextDelta
    from glm_engine.server.http.streaming import Text


check_content = partial(check_parts, types=("text",), takes_null=False)


class Prediction(StrictModel):
    type: Literal["content"]
    content: Annotated[
        str | Annotated[list[TextPart], items(MAX_PARTS)], BeforeValidator(check_content)
    ]

    @property
    def text(self) -> str:
        return self.content if isinstance(self.content, str) else text_of(self.content)


class ChatRequest(PromptFields, ConversationFields, ConstraintFields):
    thinking_budget: Budget | None = None
    thinking_token_budget: Budget | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = True
    logprobs: bool | None = False
    top_logprobs: Annotated[int, whole(ge=0, le=MAX_LOGPROBS)] | None = None
    max_completion_tokens: Annotated[int, whole(ge=1, le=MAX_TOKENS)] | None = None
    include_reasoning: bool | None = True
    separate_reasoning: Annotated[Any, only(True)] = None
    stream_reasoning: Annotated[Any, only(True)] = None
    prediction: Prediction | None = None
    echo: bool | None = False
    modalities: Annotated[Any, only(["text"])] = None
    audio: Annotated[Any, only()] = None
    moderation: Annotated[Any, only()] = None
    functions: Annotated[Any, only([])] = None
    function_call: Annotated[Any, only("none", "auto")] = None
    web_search_options: Annotated[Any, only()] = None


def constraints_of(fields: ChatRequest, tools: list[Json]) -> list[Constraint]:
    """Return what a chat request asks for."""
    choice = mode_of(fields.tool_choice)
    name = choice.function.name if isinstance(choice, NamedTool) else None
    found = answer_constraints(
        response_format_constraints(fields),
        tools,
        must_call=choice not in ("auto", "none"),
        name=name,
        takes_one=fields.parallel_tool_calls is False,
        others=structured_constraints(fields),
    )
    return spaced(found, disables_spaces(fields))


class ChatPresenter(AnswerPresenter):
    """The events or the body of a chat answer; `echo` comes before what each choice says."""

    def __init__(
        self, service: "Service", job: Job, fields: ChatRequest, turns: list[Turn], echo: str = ""
    ) -> None:
        kind = "chat.completion.chunk" if fields.stream else "chat.completion"
        count = partial(chat_usage_of, job, turns, fields.prediction is not None)
        writer = EventWriter(service, job, fields, "chatcmpl", kind, b"delta", count)
        super().__init__(service, job, fields, writer)
        self.wants_logprobs = bool(fields.logprobs)
        self.turns = turns
        self.echo = echo
        self.answers = [Answer(echo) for _ in turns]

    def event(self, choice: "Choice", text_delta: "TextDelta") -> "Text":
        """Return the server-sent event of a text delta; empty where it says nothing."""
        turn, index = self.turns[choice.index], choice.index
        delta = message_delta(deltas_of(self.job, turn, choice, text_delta))
        of_choice, of_event = self.listed.of_delta(text_delta), {}
        if not (
            delta or text_delta.logprobs or text_delta.finish_reason or any(of_choice.values())
        ):
            return b""
        if not any(self.has_begun):
            of_event = self.listed.of_prompt(choice)
        if not self.has_begun[index]:
            self.has_begun[index] = True
            content = self.echo + delta.get("content", "")
            delta = {"role": "assistant", **delta, "content": content}
        rows, reason = self.logprobs(text_delta.logprobs), finish_reason(turn, text_delta)
        return self.writer.event(index, delta, rows, reason, of_choice, of_event)

    def logprobs(self, rows: Rows, kind: type[list[Json] | LongList] = list) -> Json | None:
        """Return the entries of rows as a list, or as one that is rendered as it is sent."""
        if not self.wants_logprobs:
            return None
        return {"content": kind(chat_entries(self.service, rows)), "refusal": None}

    def take(self, choice: "Choice", text_delta: "TextDelta") -> None:
        turn = self.turns[choice.index]
        delta = message_delta(deltas_of(self.job, turn, choice, text_delta))
        answer = self.answers[choice.index]
        self.listed.take(choice, text_delta)
        answer.take(delta, finish_reason(turn, text_delta))
        answer.rows.extend(text_delta.logprobs)

    def choice_body(self, choice: "Choice") -> Json:
        answer = self.answers[choice.index]
        return {
            "index": choice.index,
            "message": answer.message(self.turns[choice.index].num_calls),
            "logprobs": self.logprobs(answer.rows, LongList),
            "finish_reason": answer.finish_reason,
            **self.listed.of_choice(choice),
        }

    def body(self) -> "Text":
        choices = [self.choice_body(choice) for choice in self.job.choices]
        return self.writer.body(choices, **self.listed.of_prompt(self.job.choices[0]))


def num_logprobs(fields: ChatRequest) -> int:
    """Return how many alternatives to list, -1 for no log-probabilities at all."""
    if fields.top_logprobs and not fields.logprobs:
        raise ApiError(400, "top_logprobs requires logprobs to be true", "top_logprobs")
    return (fields.top_logprobs or 0) if fields.logprobs else -1


async def parse(service: "Service", fields: ChatRequest) -> Conversation:
    """Return what a chat request asks for."""
    params = SamplingParams.of(fields)
    check_count(service, params.n)
    tools = offered_tools(fields)
    constraints = constraints_of(fields, tools)
    limit = "max_tokens" if fields.max_completion_tokens is None else "max_completion_tokens"
    return Conversation(
        prompts=[await chat_prompt(service, fields, fields.messages, tools)],
        limit=OutputLimit(getattr(fields, limit), limit),
        sampling=params,
        constraints=constraints,
        budget=ThinkingBudget.of(fields, fields.reasoning_effort),
        num_logprobs=num_logprobs(fields),
        prompt_logprobs=prompt_logprobs_of(fields, fields.stream),
        truncation=fields.truncate_prompt_tokens,
        prediction=fields.prediction.text if fields.prediction else None,
    )


def present(service: "Service", job: Job, fields: ChatRequest) -> ChatPresenter:
    shown, takes_one = fields.include_reasoning is not False, fields.parallel_tool_calls is False
    turns = [Turn(parser, shown, takes_one) for parser in job.parsers]
    return ChatPresenter(service, job, fields, turns, echoed(fields))


def echoed(fields: ChatRequest) -> str:
    """Return the text that stands before each answer: the message that it goes on with."""
    last = fields.messages[-1]
    if not fields.echo or last.role != "assistant":
        return ""
    return content_of("messages", last.model_dump())


def chat_router(service: "Service") -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/chat/completions", responses=RESPONSES, tags=["OpenAI"])
    async def chat(fields: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        return await answer(service, fields, request.scope["record"], parse, present)

    return router

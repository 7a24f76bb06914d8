"""POST /v1/completions."""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import PlainValidator, WithJsonSchema
from starlette.responses import Response

from glm_engine.server.choices import LogprobRows, Rows
from glm_engine.server.fields import only, whole, wrong_kind
from glm_engine.server.http.middleware import JsonRoute
from glm_engine.server.http.streaming import LongList
from glm_engine.server.jobs import Job, answer, check_count
from glm_engine.server.openai.answer_events import (
    AnswerPresenter,
    EventWriter,
    PromptRows,
    completion_lists,
    echoed_offsets,
    usage_of,
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
    Conversation,
    OutputLimit,
    SamplingParams,
    TextPrompt,
    spaced,
)

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.choices import Choice, TextDelta
    from glm_engine.server.http.streaming import Text
    from glm_engine.text.conversation import Json

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 256
INTEGERS = frozenset({int})


def is_ids(value: object) -> bool:
    return isinstance(value, list) and INTEGERS.issuperset(map(type, value))


def prompt_list(value: Any) -> list[str | list[int]]:
    """Return a list of prompts, each a text or a list of token ids."""
    prompts = [value] if isinstance(value, str) or (value and is_ids(value)) else value
    if not isinstance(prompts, list) or not all(
        isinstance(one, str) or is_ids(one) for one in prompts
    ):
        wanted = "a string, a list of strings, a list of token ids, or a list of token id lists"
        raise wrong_kind(wanted, value)
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        raise ValueError(f"expected 1 to {MAX_PROMPTS} prompts, got {len(prompts)}")
    return prompts


IDS_SCHEMA = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
PROMPT_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": {"type": "string"}},
        IDS_SCHEMA,
        {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": IDS_SCHEMA},
    ]
}


class CompletionRequest(PromptFields, ConstraintFields):
    prompt: Annotated[
        list[str | list[int]], PlainValidator(prompt_list), WithJsonSchema(PROMPT_SCHEMA)
    ]
    max_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = None
    logprobs: Annotated[int, whole(ge=0, le=MAX_LOGPROBS)] | None = None
    echo: bool | None = False
    add_special_tokens: bool | None = True
    best_of: Annotated[Any, only(1)] = None
    suffix: Annotated[Any, only("")] = None
    max_completion_tokens: Annotated[Any, only(reason="use max_tokens instead")] = None
    detokenize: Annotated[Any, only(True)] = None


class CompletionPresenter(AnswerPresenter):
    """Writes the answer of a completion job, whole or as events."""

    def __init__(
        self, service: "Service", job: Job, fields: CompletionRequest, echoes: Sequence[str | None]
    ) -> None:
        names, count = ("cmpl", "text_completion", b"text"), partial(usage_of, job)
        writer = EventWriter(service, job, fields, *names, count)
        super().__init__(service, job, fields, writer)
        self.num_best = fields.logprobs
        self.echoes = echoes
        self.texts = [[echo or ""] for echo in echoes]
        self.rows = [LogprobRows() for _ in job.choices]
        self.offsets = [array("i") for _ in job.choices]

    def event(self, choice: "Choice", text_delta: "TextDelta") -> "Text":
        """Return the server-sent event of a text delta; empty where it says nothing."""
        index, text, added = choice.index, text_delta.text, self.listed.of_delta(text_delta)
        begins = not self.has_begun[index] and bool(
            text_delta.num_tokens or text_delta.finish_reason
        )
        if begins:
            text = (self.echoes[index] or "") + text
        if not (text or text_delta.logprobs or text_delta.finish_reason or any(added.values())):
            return b""
        lists = self.logprobs(choice, text_delta.logprobs, offsets_of(text_delta), begins)
        if begins:
            self.has_begun[index] = True
            added |= self.listed.of_prompt(choice)
        return self.writer.event(index, text, long_lists(lists), text_delta.finish_reason, added)

    def logprobs(
        self, choice: "Choice", rows: Rows, offsets: Iterable[int], begins: bool
    ) -> dict[str, Iterator[Any]] | None:
        """Return the lists of rows, behind those of an echoed prompt where an answer begins."""
        if self.num_best is None:
            return None
        echo = self.echoes[choice.index] if begins else None
        if echo is None:
            return completion_lists(self.service, offsets, rows)
        of_prompt = echoed_offsets(self.service.spelling, choice.request.prompt, echo)
        before = PromptRows(choice, self.num_best)
        return completion_lists(self.service, chain(of_prompt, offsets), before, rows)

    def take(self, choice: "Choice", text_delta: "TextDelta") -> None:
        index = choice.index
        self.listed.take(choice, text_delta)
        self.texts[index].append(text_delta.text)
        if self.num_best is not None:
            self.rows[index].extend(text_delta.logprobs)
            self.offsets[index].extend(offsets_of(text_delta))

    def choice_body(self, choice: "Choice") -> "Json":
        index = choice.index
        lists = self.logprobs(choice, self.rows[index], self.offsets[index], begins=True)
        return {
            "index": index,
            "text": "".join(self.texts[index]),
            "logprobs": long_lists(lists),
            "finish_reason": choice.finish_reason,
            **self.listed.of_choice(choice),
            **self.listed.of_prompt(choice),
        }

    def body(self) -> "Text":
        return self.writer.body([self.choice_body(choice) for choice in self.job.choices])


def offsets_of(text_delta: "TextDelta") -> list[int]:
    return [begin for begin, _ in text_delta.places]


def long_lists(lists: Mapping[str, Iterable[Any]] | None) -> "Json | None":
    return None if lists is None else {name: LongList(items) for name, items in lists.items()}


async def parse(service: "Service", fields: CompletionRequest) -> Conversation:
    """Return what a completion request asks for."""
    params = SamplingParams.of(fields)
    check_count(service, len(fields.prompt) * params.n)
    num_logprobs = -1 if fields.logprobs is None else fields.logprobs
    num_echoed = num_logprobs if fields.echo else -1
    adds_special = fields.add_special_tokens is not False
    constraints = [*response_format_constraints(fields), *structured_constraints(fields)]
    return Conversation(
        prompts=[TextPrompt(one, adds_special, bool(fields.echo)) for one in fields.prompt],
        limit=OutputLimit(fields.max_tokens, default=DEFAULT_MAX_TOKENS),
        sampling=params,
        constraints=spaced(constraints, disables_spaces(fields)),
        num_logprobs=num_logprobs,
        prompt_logprobs=prompt_logprobs_of(fields, fields.stream, num_echoed, of_all=True),
        truncation=fields.truncate_prompt_tokens,
    )


def present(service: "Service", job: Job, fields: CompletionRequest) -> CompletionPresenter:
    return CompletionPresenter(service, job, fields, [choice.echo for choice in job.choices])


def completions_router(service: "Service") -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/completions", responses=RESPONSES, tags=["OpenAI"])
    async def complete(fields: CompletionRequest, request: Request) -> Response:
        """Continue a prompt, or each of a list of prompts."""
        return await answer(service, fields, request.scope["record"], parse, present)

    return router

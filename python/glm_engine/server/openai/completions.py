"""POST /v1/completions."""

from array import array
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import PlainValidator, WithJsonSchema

from glm_engine.server.constraints import compiled
from glm_engine.server.errors import ApiError
from glm_engine.server.fields import MAX_LOGPROBS, SamplingFields, only, whole
from glm_engine.server.generation import Job
from glm_engine.server.limits import JsonRoute
from glm_engine.server.logprob_rows import LogprobRows
from glm_engine.server.long_json import LongList
from glm_engine.server.openai.answers import RESPONSES
from glm_engine.server.openai.constraint_fields import ConstraintFields
from glm_engine.server.openai.constraints import constraints_of
from glm_engine.server.openai.events import EventWriter
from glm_engine.server.openai.logprobs import completion_lists
from glm_engine.server.openai.usage import usage_of
from glm_engine.server.requests import check_count, check_model, make_choices
from glm_engine.server.streaming import EventStream, WholeAnswer
from glm_engine.server.token_rules import token_rules

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 256
INTEGERS = frozenset({int})


def is_ids(value):
    return isinstance(value, list) and INTEGERS.issuperset(map(type, value))


def prompt_list(value):
    """Return a list of prompts, each a text or a list of token ids."""
    prompts = [value] if isinstance(value, str) or (value and is_ids(value)) else value
    if not isinstance(prompts, list) or not all(
        isinstance(one, str) or is_ids(one) for one in prompts
    ):
        raise ValueError(
            "expected a text, a list of texts, a list of token ids, or a list of these"
        )
    if not 1 <= len(prompts) <= MAX_PROMPTS:
        raise ValueError(f"holds {len(prompts)} prompts, expected 1 to {MAX_PROMPTS}")
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


class CompletionRequest(SamplingFields, ConstraintFields):
    prompt: Annotated[list, PlainValidator(prompt_list), WithJsonSchema(PROMPT_SCHEMA)]
    logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    echo: bool | None = False
    add_special_tokens: bool | None = True
    best_of: only(1) = None
    suffix: only("") = None
    max_completion_tokens: only(reason="here it is named max_tokens") = None
    detokenize: only(True) = None


class CompletionPresenter:
    """Writes the answer of a completion job, whole or as events."""

    def __init__(self, service, job, fields, echoes):
        self.job = job
        self.service = service
        names, count = ("cmpl", "text_completion", b"text"), partial(usage_of, job)
        self.writer = EventWriter(service, job, fields, *names, count)
        self.closing = self.writer.closing
        self.wants_logprobs = fields.logprobs is not None
        self.echoes = echoes
        self.texts = [[echo] for echo in echoes]
        self.rows = [LogprobRows() for _ in job.choices]
        self.offsets = [array("i") for _ in job.choices]

    def event(self, choice, piece):
        """Return the server-sent event of a piece; empty where it says nothing."""
        index = choice.index
        echo, self.echoes[index] = self.echoes[index], ""
        text = echo + piece.text
        if not (text or piece.logprobs or piece.finish_reason):
            return b""
        return self.writer.event(index, text, self.logprobs(piece), piece.finish_reason)

    def logprobs(self, piece):
        if not self.wants_logprobs:
            return None
        made = completion_lists(self.service, piece.logprobs, offsets_of(piece))
        return {name: list(items) for name, items in made.items()}

    def take(self, choice, piece):
        index = choice.index
        self.texts[index].append(piece.text)
        if self.wants_logprobs:
            self.rows[index].extend(piece.logprobs)
            self.offsets[index].extend(offsets_of(piece))

    def choice_body(self, choice):
        index, logprobs = choice.index, None
        if self.wants_logprobs:
            made = completion_lists(self.service, self.rows[index], self.offsets[index])
            logprobs = {name: LongList(items) for name, items in made.items()}
        return {
            "index": index,
            "text": "".join(self.texts[index]),
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }

    def body(self):
        return self.writer.body([self.choice_body(choice) for choice in self.job.choices])


def offsets_of(piece):
    return [begin for begin, _ in piece.places]


async def encode_prompt(service, prompt, add_special_tokens):
    if isinstance(prompt, str):
        prompt = await service.encoder.encode(prompt, add_special_tokens)
    service.encoder.check_ids(prompt, service.vocab_size)
    return prompt


async def make_job(service, fields, visit):
    """Return the job of a request and the texts that its choices repeat first."""
    if fields.echo and fields.logprobs is not None:
        message = (
            "echo with logprobs needs log-probabilities of the prompt, which are not supported"
        )
        raise ApiError(400, message, "echo")
    check_count(service, len(fields.prompt), fields.n)
    rules = await token_rules(service, fields)
    choices, echoes, num_prompt_tokens = [], [], 0
    for prompt in fields.prompt:
        ids = await encode_prompt(service, prompt, fields.add_special_tokens is not False)
        num_prompt_tokens += len(ids)
        room = service.encoder.output_room(
            len(ids), fields.max_tokens, DEFAULT_MAX_TOKENS, "prompt"
        )
        num_logprobs = -1 if fields.logprobs is None else fields.logprobs
        made = make_choices(service, fields, visit, ids, room, num_logprobs, rules, len(choices))
        echoes += [echoed(service, fields, prompt, ids)] * len(made)
        choices += made
    if grammar := await compiled(service, fields, constraints_of(fields)):
        await service.guides.guide(choices, grammar)
    visit.prompt_tokens = num_prompt_tokens
    return Job(service, choices, visit), echoes


def echoed(service, fields, prompt, ids):
    """Return the text that stands before each answer to this prompt."""
    if not fields.echo:
        return ""
    return prompt if isinstance(prompt, str) else service.decode(ids)


def completions_router(service):
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/completions", responses=RESPONSES, tags=["OpenAI"])
    async def complete(fields: CompletionRequest, request: Request):
        """Continue a prompt, or each of a list of prompts."""
        check_model(service, fields.model)
        job, echoes = await make_job(service, fields, request.scope["visit"])
        presenter = CompletionPresenter(service, job, fields, echoes)
        job.submit()
        return (EventStream if fields.stream else WholeAnswer)(service, job, presenter)

    return router

"""POST /v1/completions."""

from array import array
from functools import partial
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import PlainValidator, WithJsonSchema

from glm_engine.server.choices import LogprobRows
from glm_engine.server.fields import MAX_LOGPROBS, MAX_TOKENS, only, whole, wrong_kind
from glm_engine.server.http.json_bodies import JsonRoute
from glm_engine.server.http.streaming import EventStream, LongList, WholeAnswer
from glm_engine.server.jobs import (
    Job,
    check_count,
    check_model,
    compiled,
    make_choices,
    token_rules,
    value_or,
)
from glm_engine.server.openai.answer_events import (
    EventWriter,
    PromptRows,
    TokenLists,
    completion_lists,
    echoed_offsets,
    usage_of,
)
from glm_engine.server.openai.model_endpoints import RESPONSES
from glm_engine.server.openai.request_fields import (
    ConstraintFields,
    PromptFields,
    SamplingFields,
    constraints_of,
    hold_prompt_logprobs,
    num_kept,
    num_prompt_logprobs,
)

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


class CompletionRequest(PromptFields, SamplingFields, ConstraintFields):
    prompt: Annotated[list, PlainValidator(prompt_list), WithJsonSchema(PROMPT_SCHEMA)]
    max_tokens: whole(ge=0, le=MAX_TOKENS) | None = None
    logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    echo: bool | None = False
    add_special_tokens: bool | None = True
    best_of: only(1) = None
    suffix: only("") = None
    max_completion_tokens: only(reason="use max_tokens instead") = None
    detokenize: only(True) = None


class CompletionPresenter:
    """Writes the answer of a completion job, whole or as events."""

    def __init__(self, service, job, fields, echoes):
        self.job = job
        self.service = service
        names, count = ("cmpl", "text_completion", b"text"), partial(usage_of, job)
        self.writer = EventWriter(service, job, fields, *names, count)
        self.closing = self.writer.closing
        self.num_best = fields.logprobs
        self.echoes = echoes
        self.listed = TokenLists(service, job, fields)
        self.has_begun = [False] * len(echoes)
        self.texts = [[echo or ""] for echo in echoes]
        self.rows = [LogprobRows() for _ in job.choices]
        self.offsets = [array("i") for _ in job.choices]

    def event(self, choice, piece):
        """Return the server-sent event of a piece; empty where it says nothing."""
        index, text, added = choice.index, piece.text, self.listed.of_piece(piece)
        begins = not self.has_begun[index] and bool(piece.num_tokens or piece.finish_reason)
        if begins:
            text = (self.echoes[index] or "") + text
        if not (text or piece.logprobs or piece.finish_reason or any(added.values())):
            return b""
        lists = self.logprobs(choice, piece.logprobs, offsets_of(piece), begins)
        if begins:
            self.has_begun[index] = True
            added |= self.listed.of_prompt(choice)
        return self.writer.event(index, text, long_lists(lists), piece.finish_reason, added)

    def logprobs(self, choice, rows, offsets, begins):
        """Return the lists of rows, behind those of an echoed prompt where an answer begins."""
        if self.num_best is None:
            return None
        echo = self.echoes[choice.index] if begins else None
        if echo is None:
            return completion_lists(self.service, offsets, rows)
        of_prompt = echoed_offsets(self.service.spelling, choice.request.prompt, echo)
        before = PromptRows(choice, self.num_best)
        return completion_lists(self.service, chain(of_prompt, offsets), before, rows)

    def take(self, choice, piece):
        index = choice.index
        self.listed.take(choice, piece)
        self.texts[index].append(piece.text)
        if self.num_best is not None:
            self.rows[index].extend(piece.logprobs)
            self.offsets[index].extend(offsets_of(piece))

    def choice_body(self, choice):
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

    def body(self):
        return self.writer.body([self.choice_body(choice) for choice in self.job.choices])


def offsets_of(piece):
    return [begin for begin, _ in piece.places]


def long_lists(lists):
    return None if lists is None else {name: LongList(items) for name, items in lists.items()}


async def encode_prompt(service, fields, prompt):
    """Return the ids of a prompt, and the text that its answers repeat first, None for none."""
    kept = num_kept(service, fields, value_or(fields.max_tokens, DEFAULT_MAX_TOKENS))
    if isinstance(prompt, str):
        adds_special = fields.add_special_tokens is not False
        ids = await service.encoder.encode(prompt, adds_special, num_kept=kept)
    else:
        ids = prompt if kept is None else prompt[-kept:]
    service.encoder.check_ids(ids, service.vocab_size)
    is_whole_text = isinstance(prompt, str) and (kept is None or len(ids) < kept)
    echo = prompt if is_whole_text or not fields.echo else service.decode(ids)
    return ids, echo if fields.echo else None


async def make_job(service, fields, visit):
    """Return the job of a request and the texts that its choices repeat first."""
    check_count(service, len(fields.prompt), fields.n)
    rules = await token_rules(service, fields)
    num_logprobs = value_or(fields.logprobs, -1)
    num_echoed = num_logprobs if fields.echo else -1
    num_best = num_prompt_logprobs(fields, num_echoed)
    choices, echoes, num_prompt_tokens = [], [], 0
    for prompt in fields.prompt:
        ids, echo = await encode_prompt(service, fields, prompt)
        num_prompt_tokens += len(ids)
        room = service.encoder.output_room(
            len(ids), fields.max_tokens, DEFAULT_MAX_TOKENS, "prompt"
        )
        made = make_choices(service, fields, visit, ids, room, num_logprobs, rules, len(choices))
        for choice in made:
            if num_best >= 0:
                choice.list_prompt(num_best)
            choice.lists_ending = num_echoed >= 0
            choice.num_characters = len(echo or "")
        echoes += [echo] * len(made)
        choices += made
    hold_prompt_logprobs(service, fields, num_prompt_tokens * value_or(fields.n, 1), num_best)
    if grammar := await compiled(service, fields, constraints_of(fields)):
        await service.guides.guide(choices, grammar)
    visit.prompt_tokens = num_prompt_tokens
    return Job(service, choices, visit), echoes


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

"""A job: the choices of one HTTP request, from what it asks for to text deltas."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from glm_engine.core.checks import FieldError
from glm_engine.core.errors import Status
from glm_engine.server.bridge import Inbox
from glm_engine.server.choices import Choice, TextDelta
from glm_engine.server.http.api_errors import ApiError, DisconnectedError, quoted
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.http.streaming import EventStream, JobResponse, Presenter, WholeAnswer
from glm_engine.server.prompts import EncodedPrompt, encoded_prompts
from glm_engine.text.conversation import Conversation, SamplingParams
from glm_engine.text.dialogue import DialogueParser
from glm_engine.text.engine_requests import (
    check_params,
    cutting_ids,
    ids_of_words,
    matcher_of,
    numbered,
    parser_of,
    request_of,
    sampling_of,
    seed_of,
    stop_ids,
    thought_limit,
)

if TYPE_CHECKING:
    from glm_engine.server.app import Service

NANOSECONDS = 1_000_000_000
PRIORITY = "priority"
PREDICTION = "prediction"
LOGPROB_BYTES = 8
ANSWERS_AT_ONCE = 8


def check_model(service: "Service", name: str | None) -> None:
    """Refuse a model that is not served; no name at all means the one that is."""
    if name and name not in service.model_names:
        known = ", ".join(map(repr, service.model_names))
        message = f"the model {quoted(name)} does not exist; available models: {known}"
        raise ApiError(404, message, "model", "model_not_found")


def check_count(service: "Service", count: int) -> None:
    """Refuse more choices than one request may have, so that it cannot fill the queue alone."""
    most = min(service.settings.max_choices, service.admission.most_inside)
    if count > most:
        message = f"n: expected at most {most} choices (prompts times n), got {count}"
        raise ApiError(400, message, "n")


def hold_prompt_logprobs(service: "Service", conversation: Conversation, num_tokens: int) -> None:
    """Count what the log-probabilities of so many prompt tokens will take until they are sent."""
    asked = conversation.prompt_logprobs
    num_rows = num_tokens * (conversation.sampling.n if asked.of_all else 1)
    size = LOGPROB_BYTES * (asked.num_best + 1) * num_rows
    most = service.settings.max_bodies_bytes // ANSWERS_AT_ONCE
    if size > most:
        message = (
            f"{asked.param}: log probabilities of {num_rows} prompt tokens need {size} bytes; the "
            f"maximum per answer is {most} (an eighth of --max-bodies-size)"
        )
        raise ApiError(400, message, asked.param)
    service.admission.hold_answer(size)


def deadline_of(service: "Service", params: SamplingParams, record: RequestRecord) -> int:
    """Return nanoseconds of CLOCK_MONOTONIC, counted from the request's arrival; 0 for none."""
    limits = (params.timeout_seconds, service.settings.request_seconds)
    seconds = min((one for one in limits if one), default=None)
    return 0 if seconds is None else int((record.began + seconds) * NANOSECONDS)


def check_priority(service: "Service", params: SamplingParams) -> None:
    """Refuse a priority that the server would not heed."""
    if params.priority and service.settings.scheduling_policy != PRIORITY:
        problem = "expected 0, because the server runs with --scheduling-policy fcfs"
        raise FieldError(PRIORITY, problem)


async def prediction_tokens(service: "Service", text: str | None) -> Sequence[int]:
    """Return the tokens of the expected text; none where the engine copies no drafts."""
    if text is None or not service.looks_up:
        return ()
    return await service.encoder.encode_beginning(text, service.vocab_size, PREDICTION)


async def choices_of(
    service: "Service",
    conversation: Conversation,
    record: RequestRecord,
    prompt: EncodedPrompt,
    first_index: int,
) -> list[Choice]:
    """Return the `n` choices of one prompt."""
    params, opening, encoder = conversation.sampling, prompt.opening, service.encoder
    max_tokens = encoder.output_room(len(prompt.ids), conversation.limit, conversation.param)
    thought = thought_limit(service, conversation.budget, opening, conversation.continues_turn)
    check_params(service, params, max_tokens, thought)
    check_priority(service, params)
    size = sum(map(len, params.bad_words))
    request = request_of(
        conversation,
        prompt.ids,
        max_tokens,
        sampling_of(service, params, conversation.num_logprobs, seed_of(params)),
        thought=thought,
        bad_words=await encoder.apart(size, ids_of_words, service.tokenizer, params.bad_words),
        prediction_tokens=await prediction_tokens(service, conversation.prediction),
        deadline_ns=deadline_of(service, params, record),
    )
    return [
        Choice(
            index=first_index + number,
            request=numbered(request, number, conversation.prompt_logprobs.of_all),
            detokenizer=service.tokenizer.detokenizer(params.skip_special_tokens),
            matcher=matcher_of(conversation, opening),
            ending_ids=stop_ids(service, params),
            cutting_ids=cutting_ids(service, params),
            shows_ending=params.include_stop_str_in_output,
            lists_ending=prompt.echo is not None and conversation.num_logprobs >= 0,
            counts_prompt=number == 0,
            echo=prompt.echo,
            num_characters=len(prompt.echo or ""),
        )
        for number in range(params.n)
    ]


async def make_job(service: "Service", conversation: Conversation, record: RequestRecord) -> "Job":
    """Return the job of a conversation: render, encode, make choices, compile the constraint."""
    prompts = await encoded_prompts(service, conversation)
    choices: list[Choice] = []
    for prompt in prompts:
        choices += await choices_of(service, conversation, record, prompt, len(choices))
    record.prompt_tokens = sum(len(prompt.ids) for prompt in prompts)
    hold_prompt_logprobs(service, conversation, record.prompt_tokens)
    opening = prompts[0].opening
    if found := conversation.constraint(service.settings.any_whitespace):
        grammar = await service.grammars.compiled(
            found.param, found.method, *found.arguments, **found.options
        )
        await service.guides.guide(choices, grammar, opening)
    job = Job(service, choices, record)
    if conversation.chat:
        job.parsers = [parser_of(conversation, opening) for _ in choices]
    return job


async def answer(
    service: "Service",
    body: Any,
    record: RequestRecord,
    parse: Callable[["Service", Any], Awaitable[Conversation]],
    present: Callable[["Service", "Job", Any], Presenter],
    stream: type[EventStream] = EventStream,
) -> JobResponse:
    """Return the answer to an interface's body, whose job is on the engine."""
    check_model(service, body.model)
    job = await make_job(service, await parse(service, body), record)
    presenter = present(service, job, body)
    job.submit()
    return (stream if body.stream else WholeAnswer)(service, job, presenter)


class Job:
    """The choices of one request; leaving it takes what still runs off the engine.

    parsers: those of the choices whose text may hold thoughts and calls.
    """

    def __init__(self, service: "Service", choices: list[Choice], record: RequestRecord) -> None:
        self.bridge = service.bridge
        self.metrics = service.metrics
        self.choices: list[Choice] = choices
        self.record: RequestRecord = record
        record.choices = choices
        self.parsers: list[DialogueParser] = []
        self.inbox = Inbox()
        self.is_abandoned = False
        self.failure: ApiError | None = None

    def submit(self) -> None:
        """Queue all choices, or none of them where the engine refuses one."""
        self.record.submitted_at = time.monotonic()
        try:
            for choice in self.choices:
                self.bridge.submit(choice, self.inbox)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        for choice in self.choices:
            if choice.request_id and self.bridge.cancel(choice):
                self.metrics.finished["abort"] += 1

    def complete(self, choice: Choice) -> None:
        """End a choice whose answer is whole, although the model might go on."""
        self.bridge.cancel(choice)
        choice.ending = ("stop_token", Status.GLM_OK, "")
        self.inbox.add(choice)

    def abandon(self) -> None:
        """Give up because nobody reads any more."""
        self.is_abandoned = True
        self.cancel()
        self.inbox.wake()

    def fail(self, error: ApiError) -> None:
        """End every choice with an error, for a reason outside the engine."""
        self.failure = error
        self.cancel()
        self.inbox.wake()

    async def wakes(self) -> AsyncIterator[Iterator[tuple[Choice, TextDelta]]]:
        """Yield iterators over (choice, text delta), to be read to the end; none if only woken."""
        num_open = len(self.choices)
        while num_open:
            taken = await self.inbox.take()
            if self.is_abandoned:
                raise DisconnectedError
            if self.failure:
                raise self.failure
            yield self.text_deltas(taken)
            num_open = sum(not one.finish_reason for one in self.choices)
        self.record.finish_reason = ",".join(
            sorted({str(one.finish_reason) for one in self.choices})
        )

    def text_deltas(self, choices: Iterable[Choice]) -> Iterator[tuple[Choice, TextDelta]]:
        """Yield the text deltas of choices with news, and measure each choice's tokens together."""
        now = time.monotonic()
        for choice in choices:
            if choice.finish_reason:
                continue
            num_before = choice.num_tokens
            for text_delta in self.advance(choice, now):
                yield choice, text_delta
            if count := choice.num_tokens - num_before:
                self.record.take_tokens(count, now)
                self.metrics.take_tokens(count, now, choice.token_at, self.record)
                choice.token_at = now

    def advance(self, choice: Choice, now: float) -> Iterator[TextDelta]:
        """Yield the text deltas of a choice, and take note of its beginning and its end."""
        is_new = choice.token_at is None
        try:
            for text_delta in choice.advance():
                if is_new and (text_delta.num_tokens or text_delta.finish_reason):
                    is_new = False
                    self.measure_start(choice, now)
                if text_delta.finish_reason:
                    self.metrics.finished[text_delta.finish_reason] += 1
                    self.bridge.cancel(choice)
                yield text_delta
        except ApiError:
            self.metrics.finished["error"] += 1
            raise

    def measure_start(self, choice: Choice, now: float) -> None:
        """Count what is known of a choice with its first token, or its end without one."""
        record, started_at = self.record, choice.started_ns / NANOSECONDS
        self.metrics.take_start(started_at - record.submitted_at, now - started_at, now)
        record.started_at = record.started_at or started_at
        if choice.counts_prompt:
            record.cached_tokens += choice.cached_tokens
            self.metrics.take_prompt(len(choice.request.prompt), choice.cached_tokens, now)

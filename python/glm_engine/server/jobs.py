"""A job: the choices of one HTTP request."""

import secrets
import time
from array import array

from glm_engine.core.errors import Status
from glm_engine.core.requests import Request, Sampling, ThoughtLimit
from glm_engine.server.bridge import Inbox
from glm_engine.server.choices import Choice
from glm_engine.server.fields import MAX_BIASES, NO_SEED, SEED_MASK
from glm_engine.server.http.api_errors import ApiError, DisconnectedError, quoted
from glm_engine.server.interface import CALL_METHODS, EXACT_METHODS
from glm_engine.server.prompts import outside_vocabulary
from glm_engine.text.detokenizer import StopMatcher
from glm_engine.text.dialogue import AnswerFinder, DialogueParser, Opening
from glm_engine.text.dialogue.tags import THINK, THINK_END

NANOSECONDS = 1_000_000_000
PRIORITY = "priority"
EFFORT_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}
UNLIMITED = -1
ALLOWED = "allowed_token_ids"


def check_model(service, name):
    """Refuse a model that is not served; no name at all means the one that is."""
    if name and name not in service.model_names:
        known = ", ".join(map(repr, service.model_names))
        message = f"the model {quoted(name)} does not exist; available models: {known}"
        raise ApiError(404, message, "model", "model_not_found")


def check_count(service, num_prompts, n):
    """Refuse more choices than one request may have, so that it cannot fill the queue alone."""
    count = num_prompts * value_or(n, 1)
    most = min(service.settings.max_choices, service.gate.most_inside)
    if count > most:
        message = f"n: expected at most {most} choices (prompts times n), got {count}"
        raise ApiError(400, message, "n")


def priority_of(service, fields):
    """Return the engine's priority: its greater goes first, a client's lower, as in vLLM."""
    priority = value_or(fields.priority, 0)
    if priority and service.settings.scheduling_policy != PRIORITY:
        message = "priority: expected 0, because the server runs with --scheduling-policy fcfs"
        raise ApiError(400, message, "priority")
    return -priority


def value_or(value, otherwise):
    return otherwise if value is None else value


def sampling_of(service, fields, seed, num_logprobs):
    defaults = service.defaults
    return Sampling(
        temperature=value_or(fields.temperature, defaults["temperature"]),
        top_p=value_or(fields.top_p, defaults["top_p"]),
        min_p=value_or(fields.min_p, defaults["min_p"]),
        top_k=max(0, value_or(fields.top_k, defaults["top_k"])),
        repetition_penalty=value_or(fields.repetition_penalty, defaults["repetition_penalty"]),
        frequency_penalty=value_or(fields.frequency_penalty, 0.0),
        presence_penalty=value_or(fields.presence_penalty, 0.0),
        num_logprobs=num_logprobs,
        seed=seed,
    )


def deadline_of(service, fields, visit):
    """Return nanoseconds of CLOCK_MONOTONIC, counted from the request's arrival; 0 for none."""
    limits = (fields.timeout_seconds, service.settings.request_seconds)
    seconds = min((one for one in limits if one), default=None)
    return 0 if seconds is None else int((visit.began + seconds) * NANOSECONDS)


def stop_ids(service, fields):
    endings = frozenset() if fields.ignore_eos else service.ending_ids
    return endings | frozenset(fields.stop_token_ids or ())


def check_token_ids(service, fields):
    """Refuse ids outside the vocabulary, and more of them than a step has room for."""
    for name in ("stop_token_ids", "logit_bias"):
        wrong = [one for one in getattr(fields, name) or () if one >= service.vocab_size]
        if wrong:
            message = f"{name}: {outside_vocabulary(wrong[0], service.vocab_size)}"
            raise ApiError(400, message, name)
    forbidden = stop_ids(service, fields) if fields.min_tokens else frozenset()
    if len(forbidden.union(fields.logit_bias or ())) > MAX_BIASES:
        message = (
            f"logit_bias: its token ids and the {len(forbidden)} end-of-text ids that min_tokens "
            f"suppresses exceed {MAX_BIASES}"
        )
        raise ApiError(400, message, "logit_bias")


def seed_of(fields):
    """Return the seed of the first choice: a fresh one where the client names none."""
    return secrets.randbits(64) if fields.seed in (None, NO_SEED) else fields.seed


def make_choices(
    service, fields, visit, prompt, max_tokens, num_logprobs, rules, first_index=0, layout=None
):
    """Return the `n` choices of one prompt; the k-th draws with seed + k.

    rules: fields of the engine's request, from `token_rules`.
    layout: how a turn begins that may hold a thought, from `layout_of`.
    """
    min_tokens = value_or(fields.min_tokens, 0)
    if min_tokens > max_tokens:
        message = (
            f"min_tokens ({min_tokens}) is greater than the maximum output of {max_tokens} tokens"
        )
        raise ApiError(400, message, "min_tokens")
    check_token_ids(service, fields)
    prompt, seed = array("i", prompt), seed_of(fields)
    deadline_ns, priority = deadline_of(service, fields, visit), priority_of(service, fields)
    return [
        Choice(
            index=first_index + number,
            request=Request(
                prompt,
                max_tokens=max_tokens,
                min_tokens=min_tokens,
                sampling=sampling_of(service, fields, (seed + number) & SEED_MASK, num_logprobs),
                ignore_eos=bool(fields.ignore_eos),
                stop_tokens=tuple(fields.stop_token_ids or ()),
                biases=fields.logit_bias or {},
                priority=priority,
                deadline_ns=deadline_ns,
                **rules,
            ),
            detokenizer=service.tokenizer.detokenizer(fields.skip_special_tokens is not False),
            matcher=matcher_of(fields, layout),
            ending_ids=stop_ids(service, fields),
            cutting_ids=frozenset(fields.stop_token_ids or ()) - service.ending_ids,
            shows_ending=bool(fields.include_stop_str_in_output),
            counts_prompt=number == 0,
        )
        for number in range(value_or(fields.n, 1))
    ]


def matcher_of(fields, layout):
    if not fields.stop:
        return None
    finder = None if layout is None else AnswerFinder(**layout)
    return StopMatcher(fields.stop, bool(fields.include_stop_str_in_output), finder)


def layout_of(constraints, opening, continues_turn=False):
    """Return how a turn begins, as `DialogueParser` and `AnswerFinder` take it.

    What follows an expression keeps each of its characters.
    """
    is_exact = method_of(constraints) in EXACT_METHODS
    return {
        "in_reasoning": opening is Opening.THOUGHT,
        "continues_turn": continues_turn or (is_exact and opening is Opening.ANSWER),
        "keeps_spaces": is_exact,
    }


def method_of(constraints):
    return constraints[0].method if constraints else None


def parser_of(constraints, layout, tools):
    """Return the parser of an answer that follows the constraints.

    What follows a schema or an expression is never read as calls, whatever it spells.
    """
    method = method_of(constraints)
    return DialogueParser(
        tools=tools,
        parses_tool_calls=bool(tools) and method in (None, *CALL_METHODS),
        calls_come_first=method == "calls_or_document",
        **layout,
    )


async def compiled(service, fields, constraints):
    """Return the grammar of the one constraint that there may be, None where there is none."""
    if not constraints:
        return None
    if len(constraints) > 1:
        names = " and ".join(one.param for one in constraints)
        raise ApiError(400, f"{names} cannot be used together", constraints[1].param)
    found = constraints[0].spaced(service.settings.any_whitespace)
    if fields.ignore_eos:
        raise ApiError(400, f"ignore_eos: cannot be used with {found.param}", "ignore_eos")
    return await service.grammars.compiled(
        found.param, found.method, *found.arguments, **found.options
    )


def stated_budgets(fields):
    """Return the budgets that a request states, by their fields."""
    names = ("thinking_budget", "thinking_token_budget")
    found = {name: getattr(fields, name, None) for name in names}
    found["thinking.budget_tokens"] = fields.thinking and fields.thinking.budget_tokens
    return {name: one for name, one in found.items() if one not in (None, UNLIMITED)}


def thought_limit(service, fields, opening, effort=None, continues_turn=False):
    """Return the limit of a thought, None where it has none; of several budgets the least counts.

    The token of the tag that templates write ends the thought.
    """
    stated = stated_budgets(fields)
    budget = min(stated.values(), default=EFFORT_BUDGETS.get(effort))
    is_open = opening is Opening.THOUGHT
    if budget is None or (continues_turn and not is_open):
        return None
    end = service.tokenizer.id_of(THINK_END)
    if end is None:
        return refuse_budgets(stated)
    begin = service.tokenizer.id_of(THINK)
    return ThoughtLimit(budget, end, -1 if begin is None else begin, is_open)


def refuse_budgets(stated):
    """Refuse budgets that were stated, where no token ends a thought; efforts have none then."""
    for name in stated:
        message = f"{name}: not supported, because the tokenizer has no {THINK_END} token"
        raise ApiError(400, message, name)


async def token_rules(service, fields, thought=None):
    """Return the fields of the engine's request that hold the rules; ApiError names a wrong one.

    thought: the limit of a thought, or None.
    """
    allowed = fields.allowed_token_ids or ()
    if allowed:
        service.encoder.check_known(allowed, service.vocab_size, ALLOWED)
    if allowed and thought is not None and thought.end_token not in allowed:
        message = (
            f"{ALLOWED}: expected token {thought.end_token} ({THINK_END}) in the list, because the "
            "request sets a thinking budget"
        )
        raise ApiError(400, message, ALLOWED)
    return {
        "thought": thought,
        "allowed_tokens": tuple(allowed),
        "bad_words": await bad_words(service, fields.bad_words or ()),
    }


async def bad_words(service, words):
    """Return the tokens of each word, and of each after a space, as vLLM has them."""
    size = sum(map(len, words))
    return await service.encoder.apart(size, ids_of_words, service.tokenizer, words)


def ids_of_words(tokenizer, words):
    texts = dict.fromkeys(text for word in words for text in spellings(word))
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def spellings(word):
    bare = word.lstrip()
    return (bare, f" {bare}") if bare else (word,)


class Job:
    """The choices of one request; leaving it takes what still runs off the engine."""

    def __init__(self, service, choices, visit):
        self.bridge = service.bridge
        self.metrics = service.metrics
        self.choices = choices
        self.visit = visit
        visit.choices = choices
        self.inbox = Inbox()
        self.is_abandoned = False
        self.failure = None

    def submit(self):
        """Queue all choices, or none of them where the engine refuses one."""
        self.visit.submitted_at = time.monotonic()
        try:
            for choice in self.choices:
                self.bridge.submit(choice, self.inbox)
        except BaseException:
            self.cancel()
            raise

    def cancel(self):
        for choice in self.choices:
            if choice.request_id and self.bridge.cancel(choice):
                self.metrics.finished["abort"] += 1

    def complete(self, choice):
        """End a choice whose answer is whole, although the model might go on."""
        self.bridge.cancel(choice)
        choice.ending = ("stop_token", Status.GLM_OK, "")
        self.inbox.add(choice)

    def abandon(self):
        """Give up because nobody reads any more."""
        self.is_abandoned = True
        self.cancel()
        self.inbox.wake()

    def fail(self, error):
        """End every choice with an error, for a reason outside the engine."""
        self.failure = error
        self.cancel()
        self.inbox.wake()

    async def wakes(self):
        """Yield iterators over (choice, piece), to be read to the end; none if only woken."""
        num_open = len(self.choices)
        while num_open:
            taken = await self.inbox.take()
            if self.is_abandoned:
                raise DisconnectedError
            if self.failure:
                raise self.failure
            yield self.pieces(taken)
            num_open = sum(not one.finish_reason for one in self.choices)
        self.visit.finish_reason = ",".join(sorted({one.finish_reason for one in self.choices}))

    def pieces(self, choices):
        """Yield the pieces of choices with news, and measure the tokens of each choice together."""
        now = time.monotonic()
        for choice in choices:
            if choice.finish_reason:
                continue
            num_before = choice.num_tokens
            for piece in self.advance(choice, now):
                yield choice, piece
            if count := choice.num_tokens - num_before:
                self.visit.take_tokens(count, now)
                self.metrics.take_tokens(count, now, choice.token_at, self.visit)
                choice.token_at = now

    def advance(self, choice, now):
        """Yield the pieces of a choice, and take note of its beginning and its end."""
        is_new = choice.token_at is None
        try:
            for piece in choice.advance():
                if is_new and (piece.num_tokens or piece.finish_reason):
                    is_new = False
                    self.measure_start(choice, now)
                if piece.finish_reason:
                    self.metrics.finished[piece.finish_reason] += 1
                    self.bridge.cancel(choice)
                yield piece
        except ApiError:
            self.metrics.finished["error"] += 1
            raise

    def measure_start(self, choice, now):
        """Count what is known of a choice with its first token, or its end without one."""
        visit, started_at = self.visit, choice.started_ns / NANOSECONDS
        self.metrics.take_start(started_at - visit.submitted_at, now - started_at, now)
        visit.started_at = visit.started_at or started_at
        if choice.counts_prompt:
            visit.cached_tokens += choice.cached_tokens
            self.metrics.take_prompt(len(choice.request.prompt), choice.cached_tokens, now)

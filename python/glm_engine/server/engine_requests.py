"""From a conversation to the engine's requests: checks, defaults, rules, seeds and ends."""

import secrets
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from glm_engine.core.requests import Request, Sampling, ThoughtLimit
from glm_engine.server.choices import Choice
from glm_engine.server.fields import MAX_BIASES, NO_SEED, SEED_MASK
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.interface import (
    EXACT_METHODS,
    Constraint,
    Conversation,
    SamplingParams,
    ThinkingBudget,
)
from glm_engine.server.prompts import EncodedPrompt, outside_vocabulary
from glm_engine.text.dialogue import AnswerFinder, Opening
from glm_engine.text.dialogue.tags import THINK, THINK_END
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import GlmTokenizer

if TYPE_CHECKING:
    from glm_engine.server.app import Service

NANOSECONDS = 1_000_000_000
PRIORITY = "priority"
ALLOWED = "allowed_token_ids"
PREDICTION = "prediction"
EFFORT_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}


def check_params(service: "Service", params: SamplingParams, max_tokens: int) -> None:
    """Refuse ids outside the vocabulary, more of them than a step takes, and more than may come."""
    if params.min_tokens > max_tokens:
        message = (
            f"min_tokens ({params.min_tokens}) is greater than the maximum output of {max_tokens} "
            "tokens"
        )
        raise ApiError(400, message, "min_tokens")
    for name in ("stop_token_ids", "logit_bias"):
        wrong = [one for one in getattr(params, name) if one >= service.vocab_size]
        if wrong:
            message = f"{name}: {outside_vocabulary(wrong[0], service.vocab_size)}"
            raise ApiError(400, message, name)
    forbidden = stop_ids(service, params) if params.min_tokens else frozenset()
    if len(forbidden.union(params.logit_bias)) > MAX_BIASES:
        message = (
            f"logit_bias: its token ids and the {len(forbidden)} end-of-text ids that min_tokens "
            f"suppresses exceed {MAX_BIASES}"
        )
        raise ApiError(400, message, "logit_bias")


def stop_ids(service: "Service", params: SamplingParams) -> frozenset[int]:
    endings: frozenset[int] = frozenset() if params.ignore_eos else service.ending_ids
    return endings | frozenset(params.stop_token_ids)


def deadline_of(service: "Service", params: SamplingParams, record: RequestRecord) -> int:
    """Return nanoseconds of CLOCK_MONOTONIC, counted from the request's arrival; 0 for none."""
    limits = (params.timeout_seconds, service.settings.request_seconds)
    seconds = min((one for one in limits if one), default=None)
    return 0 if seconds is None else int((record.began + seconds) * NANOSECONDS)


def priority_of(service: "Service", params: SamplingParams) -> int:
    """Return the engine's priority: its greater goes first, a client's lower, as in vLLM."""
    if params.priority and service.settings.scheduling_policy != PRIORITY:
        message = "priority: expected 0, because the server runs with --scheduling-policy fcfs"
        raise ApiError(400, message, "priority")
    return -params.priority


def sampling_of(service: "Service", params: SamplingParams, **ours: int) -> Sampling:
    """Return how the engine draws tokens: `params`, else the server's defaults; ours: the rest."""
    stated = {
        name: default if getattr(params, name) is None else getattr(params, name)
        for name, default in service.defaults.items()
    }
    stated["top_k"] = max(0, stated["top_k"])
    penalties = (params.frequency_penalty, params.presence_penalty)
    return Sampling(**stated, frequency_penalty=penalties[0], presence_penalty=penalties[1], **ours)


def thought_limit(
    service: "Service", budget: ThinkingBudget, opening: Opening, continues_turn: bool
) -> ThoughtLimit | None:
    """Return the limit of a thought, None where it has none.

    The token of the tag that templates write ends the thought.
    """
    most = min(budget.stated.values(), default=EFFORT_BUDGETS.get(budget.effort or ""))
    is_open = opening is Opening.THOUGHT
    if most is None or (continues_turn and not is_open):
        return None
    end = service.tokenizer.id_of(THINK_END)
    if end is None:
        for name in budget.stated:
            message = f"{name}: not supported, because the tokenizer has no {THINK_END} token"
            raise ApiError(400, message, name)
        return None
    begin = service.tokenizer.id_of(THINK)
    return ThoughtLimit(most, end, -1 if begin is None else begin, is_open)


async def token_rules(
    service: "Service", params: SamplingParams, thought: ThoughtLimit | None
) -> dict[str, Any]:
    """Return the fields of the engine's request that forbid tokens; ApiError names a wrong one."""
    allowed = params.allowed_token_ids
    if allowed:
        service.encoder.check_known(allowed, service.vocab_size, ALLOWED)
    if allowed and thought is not None and thought.end_token not in allowed:
        message = (
            f"{ALLOWED}: expected token {thought.end_token} ({THINK_END}) in the list, because the "
            "request sets a thinking budget"
        )
        raise ApiError(400, message, ALLOWED)
    size = sum(map(len, params.bad_words))
    words = await service.encoder.apart(size, ids_of_words, service.tokenizer, params.bad_words)
    return {"thought": thought, "allowed_tokens": tuple(allowed), "bad_words": words}


def ids_of_words(tokenizer: GlmTokenizer, words: Sequence[str]) -> list[list[int]]:
    """Return the tokens of each word, and of each after a space, as vLLM has them."""
    texts = dict.fromkeys(text for word in words for text in spellings(word))
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def spellings(word: str) -> Sequence[str]:
    bare = word.lstrip()
    return (bare, f" {bare}") if bare else (word,)


async def prediction_tokens(service: "Service", text: str | None) -> Sequence[int]:
    """Return the tokens of the expected text; none where the engine copies no drafts."""
    if text is None or not service.looks_up:
        return ()
    return await service.encoder.encode_beginning(text, service.vocab_size, PREDICTION)


def method_of(constraints: Sequence[Constraint]) -> str | None:
    return constraints[0].method if constraints else None


def layout_of(conversation: Conversation, opening: Opening) -> dict[str, bool]:
    """Return how a turn begins, as `DialogueParser` and `AnswerFinder` take it.

    What follows an expression keeps each of its characters.
    """
    is_exact = method_of(conversation.constraints) in EXACT_METHODS
    return {
        "in_reasoning": opening is Opening.THOUGHT,
        "continues_turn": conversation.continues_turn or (is_exact and opening is Opening.ANSWER),
        "keeps_spaces": is_exact,
    }


def matcher_of(conversation: Conversation, layout: dict[str, bool]) -> StopMatcher | None:
    params = conversation.sampling
    if not params.stop:
        return None
    finder = AnswerFinder(**layout) if conversation.chat else None
    return StopMatcher(params.stop, params.include_stop_str_in_output, finder)


async def choices_of(
    service: "Service",
    conversation: Conversation,
    record: RequestRecord,
    prompt: EncodedPrompt,
    first_index: int,
) -> list[Choice]:
    """Return the `n` choices of one prompt; the k-th draws with seed + k."""
    params, asked = conversation.sampling, conversation.prompt_logprobs
    max_tokens = service.encoder.output_room(
        len(prompt.ids), conversation.limit, conversation.param
    )
    layout = layout_of(conversation, prompt.opening)
    thought = thought_limit(
        service, conversation.budget, prompt.opening, conversation.continues_turn
    )
    rules = await token_rules(service, params, thought)
    prediction = await prediction_tokens(service, conversation.prediction)
    check_params(service, params, max_tokens)
    ids = array("i", prompt.ids)
    seed = secrets.randbits(64) if params.seed in (None, NO_SEED) else params.seed or 0
    deadline_ns, priority = deadline_of(service, params, record), priority_of(service, params)
    return [
        Choice(
            index=first_index + number,
            request=Request(
                ids,
                max_tokens=max_tokens,
                min_tokens=params.min_tokens,
                sampling=sampling_of(
                    service,
                    params,
                    seed=(seed + number) & SEED_MASK,
                    num_logprobs=conversation.num_logprobs,
                ),
                ignore_eos=params.ignore_eos,
                stop_tokens=tuple(params.stop_token_ids),
                biases=params.logit_bias,
                priority=priority,
                deadline_ns=deadline_ns,
                num_prompt_logprobs=asked.num_best if asked.of_all or number == 0 else -1,
                prediction_tokens=prediction,
                **rules,
            ),
            detokenizer=service.tokenizer.detokenizer(params.skip_special_tokens),
            matcher=matcher_of(conversation, layout),
            ending_ids=stop_ids(service, params),
            cutting_ids=frozenset(params.stop_token_ids) - service.ending_ids,
            shows_ending=params.include_stop_str_in_output,
            lists_ending=prompt.echo is not None and conversation.num_logprobs >= 0,
            counts_prompt=number == 0,
            echo=prompt.echo,
            num_characters=len(prompt.echo or ""),
        )
        for number in range(params.n)
    ]

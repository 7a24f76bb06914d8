"""From a conversation to the engine's requests: checks, defaults, rules, seeds and ends."""

import secrets
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from glm_engine.core.checks import FieldError
from glm_engine.core.requests import Request, Sampling, ThoughtLimit
from glm_engine.text.conversation import (
    CALL_METHODS,
    EXACT_METHODS,
    MAX_BIASES,
    Conversation,
    SamplingParams,
    ThinkingBudget,
)
from glm_engine.text.dialogue import AnswerFinder, DialogueParser, Opening
from glm_engine.text.dialogue.tags import THINK, THINK_END
from glm_engine.text.stop_matcher import StopMatcher
from glm_engine.text.tokenizer import GlmTokenizer

SEED_BITS = 64
SEED_MASK: int = 2**SEED_BITS - 1
NO_SEED = -1
EFFORT_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}


class Model(Protocol):
    """What requests depend on; defaults: what sampling fields that are None mean."""

    @property
    def tokenizer(self) -> GlmTokenizer:
        """Its tokenizer."""

    @property
    def vocab_size(self) -> int:
        """How many tokens it knows."""

    @property
    def ending_ids(self) -> frozenset[int]:
        """The tokens that end a text."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The sampling fields of the checkpoint, or else of OpenAI's API."""


def check_params(
    model: Model, params: SamplingParams, max_tokens: int, thought: ThoughtLimit | None
) -> None:
    """Refuse ids outside the vocabulary, more of them than a step takes, and more than may come."""
    place, allowed = params.place, params.allowed_token_ids
    for name in ("stop_token_ids", "logit_bias", "allowed_token_ids"):
        greatest = max(getattr(params, name), default=0)
        if greatest >= model.vocab_size:
            problem = (
                f"expected token ids from 0 to {model.vocab_size - 1}, got {greatest}: token id "
                f"{greatest} is outside the vocabulary"
            )
            raise FieldError(f"{place}{name}", problem)
    if allowed and thought is not None and thought.end_token not in allowed:
        problem = (
            f"expected token {thought.end_token} ({THINK_END}) in the list, because the request "
            "sets a thinking budget"
        )
        raise FieldError(f"{place}allowed_token_ids", problem)
    if params.min_tokens > max_tokens:
        problem = (
            f"expected at most {max_tokens} (the tokens that may be generated), got "
            f"{params.min_tokens}"
        )
        raise FieldError(f"{place}min_tokens", problem)
    forbidden = stop_ids(model, params) if params.min_tokens else frozenset()
    count = len(forbidden.union(params.logit_bias))
    if count > MAX_BIASES:
        problem = (
            f"expected at most {MAX_BIASES} token ids together with the {len(forbidden)} "
            f"end-of-text ids that min_tokens suppresses, got {count}"
        )
        raise FieldError(f"{place}logit_bias", problem)


def stop_ids(model: Model, params: SamplingParams) -> frozenset[int]:
    """Return the tokens that end an answer."""
    endings: frozenset[int] = frozenset() if params.ignore_eos else model.ending_ids
    return endings | frozenset(params.stop_token_ids)


def cutting_ids(model: Model, params: SamplingParams) -> frozenset[int]:
    """Return the tokens that end an answer by the caller's wish, not by the model's."""
    return frozenset(params.stop_token_ids) - model.ending_ids


def sampling_of(model: Model, params: SamplingParams, num_logprobs: int, seed: int) -> Sampling:
    """Return how the engine draws tokens: as `params` say, else by the model's defaults."""
    stated = {
        name: default if getattr(params, name) is None else getattr(params, name)
        for name, default in model.defaults.items()
    }
    stated["top_k"] = max(0, stated["top_k"])
    return Sampling(
        **stated,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        num_logprobs=num_logprobs,
        seed=seed,
    )


def seed_of(params: SamplingParams, draw: Callable[[int], int] = secrets.randbits) -> int:
    """Return the seed of a prompt's first answer, drawn where `params` state none."""
    if params.seed is None or params.seed == NO_SEED:
        return draw(SEED_BITS)
    return params.seed & SEED_MASK


def thought_limit(
    model: Model, budget: ThinkingBudget, opening: Opening, continues_turn: bool
) -> ThoughtLimit | None:
    """Return the limit of a thought, None where it has none.

    The token of the tag that templates write ends the thought.
    """
    most = min(budget.stated.values(), default=EFFORT_BUDGETS.get(budget.effort or ""))
    is_open = opening is Opening.THOUGHT
    if most is None or (continues_turn and not is_open):
        return None
    end = model.tokenizer.id_of(THINK_END)
    if end is None:
        for name in budget.stated:
            problem = f"not supported, because the tokenizer has no {THINK_END} token"
            raise FieldError(name, problem)
        return None
    begin = model.tokenizer.id_of(THINK)
    return ThoughtLimit(most, end, -1 if begin is None else begin, is_open)


def ids_of_words(tokenizer: GlmTokenizer, words: Sequence[str]) -> list[list[int]]:
    """Return the tokens of each word, and of each after a space, as vLLM has them."""
    texts = dict.fromkeys(text for word in words for text in spellings(word))
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def spellings(word: str) -> Sequence[str]:
    """Return a word as it begins a text and as it follows a space."""
    bare = word.lstrip()
    return (bare, f" {bare}") if bare else (word,)


def layout_of(conversation: Conversation, opening: Opening) -> dict[str, bool]:
    """Return how a turn begins, as `DialogueParser` and `AnswerFinder` take it.

    What follows an expression keeps each of its characters.
    """
    is_exact = conversation.method in EXACT_METHODS
    return {
        "in_reasoning": opening is Opening.THOUGHT,
        "continues_turn": conversation.continues_turn or (is_exact and opening is Opening.ANSWER),
        "keeps_spaces": is_exact,
    }


def parser_of(conversation: Conversation, opening: Opening) -> DialogueParser:
    """Return the parser of an answer that follows the constraints.

    What follows a schema or an expression is never read as calls, whatever it spells.
    """
    method, tools = conversation.method, conversation.tools
    return DialogueParser(
        tools=tools,
        parses_tool_calls=bool(tools) and method in (None, *CALL_METHODS),
        calls_come_first=method == "calls_or_document",
        **layout_of(conversation, opening),
    )


def matcher_of(conversation: Conversation, opening: Opening) -> StopMatcher | None:
    """Return what finds the stop texts of an answer, None where it has none."""
    params = conversation.sampling
    if not params.stop:
        return None
    finder = AnswerFinder(**layout_of(conversation, opening)) if conversation.chat else None
    return StopMatcher(params.stop, params.include_stop_str_in_output, finder)


def request_of(
    conversation: Conversation,
    ids: Sequence[int],
    max_tokens: int,
    sampling: Sampling,
    **rules: Any,
) -> Request:
    """Return the request of the first answer to a prompt; rules: what else it states."""
    params = conversation.sampling
    return Request(
        array("i", ids),
        max_tokens=max_tokens,
        min_tokens=params.min_tokens,
        sampling=sampling,
        ignore_eos=params.ignore_eos,
        stop_tokens=tuple(params.stop_token_ids),
        biases=dict(params.logit_bias),
        allowed_tokens=tuple(params.allowed_token_ids),
        priority=-params.priority,
        num_prompt_logprobs=conversation.prompt_logprobs.num_best,
        **rules,
    )


def numbered(first: Request, number: int, lists_prompt: bool = False) -> Request:
    """Return the request of another answer to the same prompt; the k-th draws with seed + k."""
    if number == 0:
        return first
    sampling = replace(first.sampling, seed=(first.sampling.seed + number) & SEED_MASK)
    num_best = first.num_prompt_logprobs if lists_prompt else -1
    return replace(first, sampling=sampling, num_prompt_logprobs=num_best)

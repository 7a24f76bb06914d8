"""How an answer is drawn, when it ends, and what form it has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from glm_engine.core.checks import (
    Check,
    ListOf,
    NamedFields,
    Real,
    Text,
    TextOrList,
    Whole,
    check_fields,
    flag,
    mapping_of,
    wrong,
)
from glm_engine.core.errors import BadInputError
from glm_engine.text.conversation import (
    LEAST_PENALTY,
    MAX_ALLOWED,
    MAX_BAD_WORDS,
    MAX_BIASES,
    MAX_CHOICES,
    MAX_LOGPROBS,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    MAX_TOKENS,
    Constraint,
    PromptLogprobs,
    ThinkingBudget,
    form_constraints,
    spaced,
)
from glm_engine.text.conversation import SamplingParams as Sampling

TOKEN_ID = Whole(0, MAX_TOKENS)
STOP_TEXT = Text(MAX_STOP_CHARACTERS, least=1)
FORMS = ("json", "json_object", "regex", "choice", "grammar")


def check_schema(place: str, value: object) -> None:
    """Refuse what is neither a JSON schema nor its text."""
    if not isinstance(value, str | Mapping):
        raise wrong(place, "a JSON schema as a dictionary or as text", value)


def check_biases(place: str, value: object) -> None:
    """Refuse what does not map token ids to numbers from -100 to 100."""
    if not isinstance(value, Mapping):
        raise wrong(place, "a dictionary of token ids and numbers", value)
    if len(value) > MAX_BIASES:
        raise BadInputError(f"{place}: expected at most {MAX_BIASES} token ids, got {len(value)}")
    for token_id, bias in value.items():
        TOKEN_ID(f"{place}: token id", token_id)
        Real(-100, 100)(f"{place}[{token_id}]", bias)


OUTPUT_CHECKS: dict[str, Check] = {
    "json": check_schema,
    "json_object": flag,
    "regex": Text(2**20),
    "choice": ListOf(Text(2**20), 4096, least=1),
    "grammar": Text(2**20),
    "disable_any_whitespace": flag,
}


@dataclass(frozen=True, kw_only=True)
class StructuredOutputsParams(NamedFields):
    """The form that an answer must have: one of five.

    json: a JSON schema, as a dictionary or as text. json_object: any JSON object.
    regex: a regular expression that the whole answer matches. choice: one of these texts.
    grammar: a grammar in Lark's syntax or in EBNF.
    disable_any_whitespace: False lets any white space stand where JSON allows it; otherwise it is
    one space behind commas and colons.
    """

    json: Mapping[str, object] | str | None = None
    json_object: bool | None = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    disable_any_whitespace: bool | None = None

    def __post_init__(self) -> None:
        check_fields(self, OUTPUT_CHECKS)
        stated = [name for name in FORMS if getattr(self, name) not in (None, False)]
        if len(stated) != 1:
            found = " and ".join(stated) or "none"
            raise BadInputError(
                f"{type(self).__name__}: expected one of {', '.join(FORMS)}, got {found}"
            )


def check_form(place: str, value: object) -> None:
    """Refuse what is neither a StructuredOutputsParams nor its fields."""
    if not isinstance(value, StructuredOutputsParams):
        form_of(place, value)


def form_of(place: str, value: object) -> StructuredOutputsParams:
    """Return the form that a dictionary of its fields states."""
    if not isinstance(value, Mapping):
        raise wrong(place, "StructuredOutputsParams or a dictionary of its fields", value)
    stated: Mapping[str, Any] = mapping_of(place, value)
    return StructuredOutputsParams(**stated)


CHECKS: dict[str, Check] = {
    "n": Whole(1, MAX_CHOICES),
    "temperature": Real(0, 2),
    "top_p": Real(0, 1),
    "top_k": Whole(-1, MAX_TOKENS),
    "min_p": Real(0, 1),
    "repetition_penalty": Real(LEAST_PENALTY, 100),
    "frequency_penalty": Real(-2, 2),
    "presence_penalty": Real(-2, 2),
    "seed": Whole(-(2**63), 2**64 - 1),
    "stop": TextOrList(ListOf(STOP_TEXT, MAX_STOPS)),
    "stop_token_ids": ListOf(TOKEN_ID, MAX_STOPS),
    "bad_words": ListOf(STOP_TEXT, MAX_BAD_WORDS),
    "allowed_token_ids": ListOf(TOKEN_ID, MAX_ALLOWED, least=1),
    "logit_bias": check_biases,
    "max_tokens": Whole(1, MAX_TOKENS),
    "min_tokens": Whole(0, MAX_TOKENS),
    "ignore_eos": flag,
    "skip_special_tokens": flag,
    "include_stop_str_in_output": flag,
    "logprobs": Whole(0, MAX_LOGPROBS),
    "prompt_logprobs": Whole(0, MAX_LOGPROBS),
    "thinking_token_budget": Whole(-1, MAX_TOKENS),
    "priority": Whole(-(2**31) + 1, 2**31 - 1),
    "structured_outputs": check_form,
}


@dataclass(frozen=True, kw_only=True)
class SamplingParams(NamedFields):
    """How an answer is drawn and when it ends. Names and bounds are those of the HTTP API.

    A field that is None takes the default of the checkpoint's generation_config.json, or else that
    of OpenAI's API (temperature 1, all others off). A wrong value is a BadInputError.

    n: how many answers to draw for each prompt; answer k is drawn with seed + k.
    temperature: 0 takes the most likely token. top_k: 0 and -1 turn it off.
    seed: with it, the same request gives the same answer; None or -1 draws a new seed.
    stop: texts that end the answer, which leaves them out unless `include_stop_str_in_output`.
    stop_token_ids, bad_words, allowed_token_ids, logit_bias: tokens that end the answer, texts that
    never come, the only tokens that may come, what is added to the logits of tokens.
    max_tokens: None means 16 for `generate`, and for `chat` the rest of the context.
    ignore_eos: whether to go on behind the token that ends a text.
    logprobs: how many of the most likely tokens to list in each place of the answer, 0 to 20; the
    token itself is always among them. prompt_logprobs: likewise of the prompt.
    thinking_token_budget: at most how many tokens to think; -1 means no limit.
    priority: of several requests that wait, that with the lower number goes first.
    """

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    allowed_token_ids: Sequence[int] | None = None
    logit_bias: Mapping[int, float] | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    thinking_token_budget: int | None = None
    priority: int = 0
    structured_outputs: StructuredOutputsParams | Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        check_fields(self, CHECKS)
        for field in fields(self):
            if field.default is not None and getattr(self, field.name) is None:
                raise BadInputError(f"SamplingParams.{field.name}: expected a value, got None")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            expected = f"at most max_tokens ({self.max_tokens})"
            raise wrong("SamplingParams.min_tokens", expected, self.min_tokens)

    @property
    def form(self) -> StructuredOutputsParams | None:
        """The form that the answer must have."""
        stated = self.structured_outputs
        if stated is None or isinstance(stated, StructuredOutputsParams):
            return stated
        return form_of("SamplingParams.structured_outputs", stated)

    @property
    def constraints(self) -> list[Constraint]:
        """What holds the answer to its form."""
        form = self.form
        if form is None:
            return []
        stated = {name: getattr(form, name) for name in FORMS}
        return self.spaced(form_constraints("structured_outputs.", stated))

    def spaced(self, constraints: list[Constraint]) -> list[Constraint]:
        """Return constraints with what the form says of white space."""
        form = self.form
        return constraints if form is None else spaced(constraints, form.disable_any_whitespace)

    def asked(self) -> dict[str, Any]:
        """Return the fields of a `Conversation` that are not its prompts, limit and constraints."""
        budget, best, listed = self.thinking_token_budget, self.logprobs, self.prompt_logprobs
        place = "SamplingParams."
        stop = (self.stop,) if isinstance(self.stop, str) else self.stop
        named = {f"{place}thinking_token_budget": budget}
        return {
            "sampling": Sampling.of(self, stop=stop, place=place),
            "budget": ThinkingBudget.stating(named),
            "num_logprobs": -1 if best is None else best,
            "prompt_logprobs": PromptLogprobs(-1 if listed is None else listed),
        }

"""Fields that the interfaces share, with their bounds.

A field that would change the result and is not supported takes its neutral value only; one that
nobody knows is left out, or refused by name where the server was told to.
"""

import operator
import re
from functools import cache, reduce
from typing import Annotated, Any

import structlog
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from glm_engine.server.errors import quoted, received
from glm_engine.server.visits import current

log = structlog.get_logger("server")
UNKNOWN_FIELD = "unknown_field"
MAX_CHOICES = 128
MAX_STOPS = 32
MAX_STOP_CHARACTERS = 1024
MAX_BIASES = 1024
MAX_ALLOWED = 2**18
MAX_BAD_WORDS = 512
MAX_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
MAX_MESSAGES = 4096
MAX_TOOLS = 256
SEED_MASK = 2**64 - 1
NO_SEED = -1
LEAST_PENALTY = 1.2e-38
MAX_NAMED = 256
MAX_NAME_CHARACTERS = 64
TOKEN_ID = re.compile("[0-9]{1,10}")


class LenientModel(BaseModel):
    """No coercions: "1" is no number, 1 no truth value; unknown fields are of no interest."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class UnknownFields:
    """What becomes of fields that nobody knows; the first of them are named once each in the log.

    are_refused: as `--strict-fields` says.
    """

    def __init__(self):
        self.are_refused = False
        self.named = set()

    def take(self, owner, names):
        """Refuse fields of a model, or name those of them in the log that never came before."""
        if self.are_refused:
            raise PydanticCustomError(UNKNOWN_FIELD, "not known", {"name": names[0]})
        new = {(owner, name[:MAX_NAME_CHARACTERS]) for name in names} - self.named
        if new and len(self.named) < MAX_NAMED:
            self.named |= new
            visit = current.get()
            shown = sorted(name for _, name in new)
            log.warning(
                "unknown fields are ignored", **(visit.origin() if visit else {}), fields=shown
            )


unknown_fields = UnknownFields()


@cache
def names_of(model):
    """Return the names of a model's fields as clients write them."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


class StrictModel(LenientModel):
    """Unknown fields are told of, or refused, but for null: that asks for nothing."""

    @model_validator(mode="before")
    @classmethod
    def take_unknown(cls, value):
        names = value.keys() - names_of(cls) if isinstance(value, dict) else ()
        if asked := sorted(name for name in names if value[name] is not None):
            unknown_fields.take(cls.__name__, asked)
        return value


def whole_number(value):
    """JSON knows one kind of number: 40.0 is an integer, 40.5 is none."""
    return int(value) if type(value) is float and value.is_integer() else value


def whole(**bounds):
    """Return the type of an integer within bounds (`ge`, `gt`, `le`, `lt`)."""
    return Annotated[int, Field(**bounds), BeforeValidator(whole_number)]


def only(*neutral, reason="not supported"):
    """Return the type of a field that is not supported beyond its neutral values."""

    def check(value):
        if value is not None and value not in neutral:
            allowed = " or ".join(repr(one) for one in neutral) or "null"
            raise ValueError(f"{reason}; leave it out or set it to {allowed}")
        return value

    return Annotated[Any, PlainValidator(check), WithJsonSchema({"enum": [None, *neutral]})]


def wrong_kind(wanted, value):
    """Return the error of a value that is of no kind that its field takes."""
    return ValueError(f"expected {wanted}, got {received(value)}")


def list_of(item, most, least=0):
    """Return the type of a list of so many items, whose first wrong one is its only error."""
    return Annotated[list[item], Field(fail_fast=True, min_length=least, max_length=most)]


def check_type(name, item, known):
    """Refuse an item of a list, called `name`, that does not state one of the known types."""
    if not isinstance(item, dict):
        raise ValueError(f"{name}: expected an object, got {received(item)}")
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in known:
        stated = "no type" if kind is None else f"type {quoted(kind)}"
        raise ValueError(f"{name} has {stated}; supported types: {', '.join(known)}")


def list_by_type(most, noun, whole_of_text=None, /, **models):
    """Return the type of a list of objects told apart by `type`; others are refused by name.

    whole_of_text: makes the one object that a bare text in place of the list stands for.
    """

    def check(value):
        items = [whole_of_text(value)] if whole_of_text and isinstance(value, str) else value
        if not isinstance(items, list):
            raise wrong_kind(f"a {'string or a ' if whole_of_text else ''}list of {noun}s", items)
        for at, item in enumerate(items):
            check_type(f"{noun} {at}", item, models)
        return items

    kinds = set(models.values())
    one = reduce(operator.or_, kinds)
    if len(kinds) > 1:
        one = Annotated[one, Field(discriminator="type")]
    given = str | list[one] if whole_of_text else list[one]
    return Annotated[list_of(one, most), BeforeValidator(check, given)]


def stop_list(value):
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | None):
        raise wrong_kind("a string or a list of strings", texts)
    return texts or []


StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Stops = Annotated[
    list_of(StopText, MAX_STOPS),
    BeforeValidator(stop_list),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
                {
                    "type": "array",
                    "maxItems": MAX_STOPS,
                    "items": {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARACTERS},
                },
                {"type": "null"},
            ]
        }
    ),
]


def checked_penalty(value):
    """Refuse what is 0 to the engine, which reckons with 32 bits."""
    if value < LEAST_PENALTY:
        raise ValueError(f"expected a number above {LEAST_PENALTY:g}, got {value:g}")
    return value


TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(ge=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
TopK = whole(ge=-1, le=MAX_TOKENS)
RepetitionPenalty = Annotated[float, Field(gt=0, le=100), AfterValidator(checked_penalty)]
Harmless = Any


def bias_table(value):
    """JSON's keys are texts; return {token id: bias}."""
    if not isinstance(value, dict):
        raise wrong_kind("an object that maps token ids to numbers", value)
    if len(value) > MAX_BIASES:
        raise ValueError(f"expected at most {MAX_BIASES} token ids, got {len(value)}")
    wrong = [key for key in value if not (isinstance(key, str) and TOKEN_ID.fullmatch(key))]
    if wrong:
        raise ValueError(f"expected token ids as keys, got {quoted(wrong[0])}")
    return {int(key): bias for key, bias in value.items()}


Biases = Annotated[
    dict[TokenId, Annotated[float, Field(ge=-100, le=100)]],
    BeforeValidator(bias_table),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_BIASES,
            "propertyNames": {"pattern": f"^{TOKEN_ID.pattern}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        }
    ),
]


class StreamOptions(StrictModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: Harmless = None


class SamplingFields(StrictModel):
    """How tokens are drawn and when they end; null stands for the default."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: whole(ge=1, le=MAX_CHOICES) | None = 1
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None
    frequency_penalty: float | None = Field(0, ge=-2, le=2)
    presence_penalty: float | None = Field(0, ge=-2, le=2)
    seed: whole(ge=-(2**63), lt=2**64) | None = None
    stop: Stops | None = None
    stop_token_ids: list_of(TokenId, MAX_STOPS) | None = None
    logit_bias: Biases | None = None
    allowed_token_ids: list_of(TokenId, MAX_ALLOWED, least=1) | None = None
    bad_words: list_of(StopText, MAX_BAD_WORDS) | None = None
    max_tokens: whole(ge=1, le=MAX_TOKENS) | None = None
    min_tokens: whole(ge=0, le=MAX_TOKENS) | None = 0
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    include_stop_str_in_output: bool | None = False
    priority: whole(gt=-(2**31), lt=2**31) | None = 0
    timeout_seconds: float | None = Field(None, gt=0, le=86400)
    user: Harmless = None
    metadata: Harmless = None
    store: Harmless = None
    service_tier: Harmless = None
    safety_identifier: Harmless = None
    prompt_cache_key: Harmless = None
    prompt_cache_retention: Harmless = None
    prompt_cache_options: Harmless = None
    request_id: Harmless = None
    spaces_between_special_tokens: Harmless = None
    use_beam_search: only(False) = None
    length_penalty: only(1) = None
    prompt_logprobs: only() = None
    truncate_prompt_tokens: only() = None
    return_token_ids: only(False) = None
    no_stop_trim: only(False) = None
    logits_processors: only([]) = None
    return_hidden_states: only(False) = None

"""Fields that the interfaces share, with their bounds.

A field that would change the result and is not supported takes its neutral value only; one that
nobody knows is left out, or refused by name where the server was told to.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any

import structlog
from annotated_types import GroupedMetadata
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

from glm_engine.server.http.api_errors import (
    MAX_PARAM_CHARACTERS,
    ApiError,
    quoted,
    received,
)
from glm_engine.server.http.request_record import current, shortened
from glm_engine.text.conversation import (
    LEAST_PENALTY,
    MAX_BIASES,
    MAX_STOP_CHARACTERS,
    MAX_STOPS,
    MAX_TOKENS,
)

if TYPE_CHECKING:
    from fastapi.exceptions import RequestValidationError

log = structlog.get_logger("server")
UNKNOWN_FIELD = "unknown_field"
MAX_MESSAGES = 4096
MAX_TOOLS = 256
MAX_NAMED = 256
MAX_NAME_CHARACTERS = 64
TOKEN_ID = re.compile("[0-9]{1,10}")
OBJECT = "an object"
EXPECTED = {
    "list_type": "a list",
    "string_type": "a string",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "dict_type": OBJECT,
    "model_type": OBJECT,
    "model_attributes_type": OBJECT,
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
}
CHOICES = {"literal_error": "expected", "union_tag_invalid": "expected_tags"}
BETWEEN_CHOICES = re.compile(", | or ")
SIZES = ("too_short", "too_long", "string_too_short", "string_too_long")
TAGS = ("union_tag_invalid", "union_tag_not_found")


class LenientModel(BaseModel):
    """No coercions: "1" is no number, 1 no truth value; unknown fields are of no interest."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class UnknownFields:
    """What becomes of fields that nobody knows; the first of them are named once each in the log.

    are_refused: as `--strict-fields` says.
    """

    def __init__(self) -> None:
        self.are_refused = False
        self.named: set[tuple[str, str]] = set()

    def take(self, owner: str, names: Sequence[str]) -> None:
        """Refuse fields of a model, or name those of them in the log that never came before."""
        if self.are_refused:
            raise PydanticCustomError(UNKNOWN_FIELD, "not known", {"name": names[0]})
        new = {(owner, name[:MAX_NAME_CHARACTERS]) for name in names} - self.named
        if new and len(self.named) < MAX_NAMED:
            self.named |= new
            record = current.get()
            shown = sorted(name for _, name in new)
            log.warning(
                "unknown fields are ignored", **(record.origin() if record else {}), fields=shown
            )


unknown_fields = UnknownFields()


@cache
def names_of(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of a model's fields as clients write them."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


class StrictModel(LenientModel):
    """Unknown fields are told of, or refused, but for null: that asks for nothing."""

    @model_validator(mode="before")
    @classmethod
    def take_unknown(cls, value: Any) -> Any:
        names = value.keys() - names_of(cls) if isinstance(value, dict) else ()
        if asked := sorted(name for name in names if value[name] is not None):
            unknown_fields.take(cls.__name__, asked)
        return value


def whole_number(value: Any) -> Any:
    """JSON knows one kind of number: 40.0 is an integer, 40.5 is none."""
    return int(value) if type(value) is float and value.is_integer() else value


class FieldType(GroupedMetadata):
    """What stands behind a type in `Annotated` and gives it bounds, checks and a schema."""

    def __init__(self, *parts: object) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[object]:
        return iter(self.parts)


def whole(
    *, ge: int | None = None, gt: int | None = None, le: int | None = None, lt: int | None = None
) -> FieldType:
    """Bound an integer."""
    return FieldType(Field(ge=ge, gt=gt, le=le, lt=lt), BeforeValidator(whole_number))


def only(*neutral: object, reason: str = "not supported") -> FieldType:
    """Refuse all but the neutral values of a field that is not supported."""

    def check(value: object) -> object:
        if value is not None and value not in neutral:
            allowed = " or ".join(repr(one) for one in neutral) or "null"
            raise ValueError(f"{reason}; leave it out or set it to {allowed}")
        return value

    return FieldType(PlainValidator(check), WithJsonSchema({"enum": [None, *neutral]}))


def wrong_kind(wanted: str, value: object) -> ValueError:
    """Return the error of a value that is of no kind that its field takes."""
    return ValueError(f"expected {wanted}, got {received(value)}")


def items(most: int, least: int = 0) -> Any:
    """Bound the length of a list, whose first wrong item is its only error."""
    return Field(fail_fast=True, min_length=least, max_length=most)


def check_type(name: str, item: object, known: Collection[str]) -> None:
    """Refuse an item of a list, called `name`, that does not state one of the known types."""
    if not isinstance(item, dict):
        raise ValueError(f"{name}: expected an object, got {received(item)}")
    kind = item.get("type")
    if not isinstance(kind, str) or kind not in known:
        stated = "no type" if kind is None else f"type {quoted(kind)}"
        raise ValueError(f"{name} has {stated}; supported types: {', '.join(known)}")


def items_by_type(
    most: int,
    noun: str,
    item: object,
    *types: str,
    whole_of_text: Callable[[str], object] | None = None,
) -> FieldType:
    """Bound a list of objects told apart by `type`; those of other types are refused by name.

    whole_of_text: makes the one object that a bare text in place of the list stands for.
    """

    def check(value: object) -> object:
        found = [whole_of_text(value)] if whole_of_text and isinstance(value, str) else value
        if not isinstance(found, list):
            raise wrong_kind(f"a {'string or a ' if whole_of_text else ''}list of {noun}s", found)
        for at, one in enumerate(found):
            check_type(f"{noun} {at}", one, types)
        return found

    listed: Any = GenericAlias(list, (item,))
    given = str | listed if whole_of_text else listed
    return FieldType(items(most), BeforeValidator(check, given))


def stop_list(value: Any) -> Any:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | None):
        raise wrong_kind("a string or a list of strings", texts)
    return texts or []


StopText = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Stops = Annotated[
    list[StopText],
    items(MAX_STOPS),
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


def checked_penalty(value: float) -> float:
    """Refuse what is 0 to the engine, which reckons with 32 bits."""
    if value < LEAST_PENALTY:
        raise ValueError(f"expected a number above {LEAST_PENALTY:g}, got {value:g}")
    return value


TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(ge=0, le=1)]
MinP = Annotated[float, Field(ge=0, le=1)]
TopK = Annotated[int, whole(ge=-1, le=MAX_TOKENS)]
RepetitionPenalty = Annotated[float, Field(gt=0, le=100), AfterValidator(checked_penalty)]
Harmless = Any


def bias_table(value: Any) -> dict[int, Any]:
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


class OmittedPart:
    """A part of what a tool answered that is no text: the model is told that it was there."""

    type: str

    @property
    def text(self) -> str:
        return f"[{self.type} omitted: this model reads text only]"


def text_of(parts: Iterable[Any] | None) -> str:
    """Return the text of parts, joined as the checkpoints' templates join them."""
    return "".join(part.text for part in parts or ())


def of_validation(error: "RequestValidationError") -> ApiError:
    """Name the first field that pydantic refused, and count the others.

    Each kind of a union has an error. One that is deeper than the field belongs to the kind that
    the client meant; those of the field itself are one message.
    """
    found = error.errors()
    if found[0]["type"] == "json_invalid":
        message = f"the request body is not valid JSON: {found[0]['ctx']['error']}"
        return ApiError(400, message, code="invalid_json")
    paths = [tuple(place_of(one, error.body)) for one in found]
    of_field = [path for path in paths if path[: len(paths[0])] == paths[0]]
    path = max(of_field, key=len)
    told = [one for one, its_path in zip(found, paths, strict=True) if its_path == path]
    param = ".".join(path) or None
    others = set(paths).difference(of_field)
    more = f" (and {len(others)} more)" if others else ""
    return ApiError(400, f"{param or 'the request body'}: {plain_message(*told)}{more}", param)


def place_of(found: Mapping[str, Any], body: object) -> list[str]:
    """Return where an error is, without the names that pydantic gives to the kinds of a union.

    Those are no key of the body; no more is a field that is missing, but it stands last.
    """
    path: list[str] = []
    here: Any = {"body": body}
    for part in found["loc"]:
        if isinstance(part, int):
            is_index = isinstance(here, list) and part < len(here)
            here = here[part] if is_index else None
        elif isinstance(here, dict) and part in here:
            here = here[part]
        elif found["type"] != "missing" or part is not found["loc"][-1]:
            continue
        path.append(shortened(str(part), MAX_PARAM_CHARACTERS))
    return path[1:] + own_part(found)


def own_part(found: Mapping[str, Any]) -> list[str]:
    """Return the field that an error names beside its place: an unknown one, or a union's tag."""
    if found["type"] == UNKNOWN_FIELD:
        return [found["ctx"]["name"]]
    return [found["ctx"]["discriminator"].strip("'")] if found["type"] in TAGS else []


def plain_message(*found: Mapping[str, Any]) -> str:
    """Return what is wrong with one field, which has an error for each kind that it takes."""
    wanted = dict.fromkeys(kind for one in found for kind in expected(one))
    if None not in wanted:
        *rest, last = map(str, wanted)
        kinds = f"{', '.join(rest)} or {last}" if rest else last
        return f"expected {kinds}, got {got(found[0])}"
    if found[0]["type"] == UNKNOWN_FIELD:
        return "unknown field, which --strict-fields rejects"
    if found[0]["type"] == "union_tag_not_found":
        return "Field required"
    return str(found[0]["msg"]).removeprefix("Value error, ")


def expected(found: Mapping[str, Any]) -> list[str | None]:
    """Return the alternatives that an error's field takes, [None] for an error of another type."""
    kind, context = found["type"], found.get("ctx", {})
    if kind in CHOICES:
        return BETWEEN_CHOICES.split(context[CHOICES[kind]])
    if kind not in EXPECTED:
        return [None]
    words = EXPECTED[kind].format(**{name: whole_number(one) for name, one in context.items()})
    is_one = 1 in (context.get("min_length"), context.get("max_length"))
    return [words.removesuffix("s") if is_one else words]


def got(found: Mapping[str, Any]) -> int | str:
    """Return what came, in the measure of what was expected."""
    if found["type"] == "union_tag_invalid":
        return received(found["ctx"]["tag"])
    return len(found["input"]) if found["type"] in SIZES else received(found["input"])

"""From pydantic's errors to what a client is told: the field, what it takes, what came."""

import re

from glm_engine.server.errors import MAX_PARAM_CHARACTERS, ApiError, received, shortened
from glm_engine.server.fields import UNKNOWN_FIELD, whole_number

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


def of_validation(error):
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


def place_of(found, body):
    """Return where an error is, without the names that pydantic gives to the kinds of a union.

    Those are no key of the body; no more is a field that is missing, but it stands last.
    """
    path, here = [], {"body": body}
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


def own_part(found):
    """Return the field that an error names beside its place: an unknown one, or a union's tag."""
    if found["type"] == UNKNOWN_FIELD:
        return [found["ctx"]["name"]]
    return [found["ctx"]["discriminator"].strip("'")] if found["type"] in TAGS else []


def plain_message(*found):
    """Return what is wrong with one field, which has an error for each kind that it takes."""
    wanted = list(dict.fromkeys(kind for one in found for kind in expected(one)))
    if None not in wanted:
        *rest, last = wanted
        kinds = f"{', '.join(rest)} or {last}" if rest else last
        return f"expected {kinds}, got {got(found[0])}"
    if found[0]["type"] == UNKNOWN_FIELD:
        return "unknown field, which --strict-fields rejects"
    if found[0]["type"] == "union_tag_not_found":
        return "Field required"
    return found[0]["msg"].removeprefix("Value error, ")


def expected(found):
    """Return the alternatives that an error's field takes, [None] for an error of another type."""
    kind, context = found["type"], found.get("ctx", {})
    if kind in CHOICES:
        return BETWEEN_CHOICES.split(context[CHOICES[kind]])
    if kind not in EXPECTED:
        return [None]
    words = EXPECTED[kind].format(**{name: whole_number(one) for name, one in context.items()})
    is_one = 1 in (context.get("min_length"), context.get("max_length"))
    return [words.removesuffix("s") if is_one else words]


def got(found):
    """Return what came, in the measure of what was expected."""
    if found["type"] == "union_tag_invalid":
        return received(found["ctx"]["tag"])
    return len(found["input"]) if found["type"] in SIZES else received(found["input"])

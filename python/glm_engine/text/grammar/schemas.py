"""JSON schemas as llguidance takes them, and where in one a problem lies."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.schema import Schema
from glm_engine.text.grammar.cost_limits import Limits, first_line
from glm_engine.text.grammar.proof import CostlyGrammarError

JsonSchema = Schema | bool
ProblemOfPart = Callable[[Schema], str]
COMPACT = {"whitespace_flexible": False, "item_separator": ", ?", "key_separator": ": ?"}
SPACED = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}"}
ANNOTATIONS = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly")
) | {"$comment"}
DATA_WORDS = frozenset({"const", "default", "enum", "examples"})
WORDS_OF_SCHEMA = ("items", "additionalProperties", "additionalItems", "not", "contains")
WORDS_OF_LIST = ("prefixItems", "anyOf", "oneOf", "allOf")
WORDS_OF_TABLE = ("properties", "patternProperties")
ROOT = "#/$defs/root"


def prepared(schema: JsonSchema, strict: bool, any_whitespace: bool) -> Schema:
    """Return a schema with the options of its compilation, the client's own taken out."""
    table = schema if isinstance(schema, dict) else {}
    options = {**(SPACED if any_whitespace else COMPACT), "lenient": not strict}
    return {**table, "x-guidance": options}


def checked_schema(name: str, schema: object, limits: Limits) -> JsonSchema:
    """Return a schema; one that JSON cannot write, that is too large or too deep is an error."""
    if schema is not True and not isinstance(schema, dict):
        raise BadInputError(f"{name}: expected an object, got {json_name(schema)}")
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (RecursionError, TypeError, ValueError) as error:
        raise BadInputError(f"{name}: cannot be serialized to JSON: {error}") from error
    check_size(name, len(text), limits)
    if (depth := depth_of(schema)) > limits.max_depth:
        raise BadInputError(f"{name}: nested {depth} levels deep; the limit is {limits.max_depth}")
    return schema


def check_size(name: str, num_bytes: int, limits: Limits) -> None:
    if num_bytes > limits.max_bytes:
        raise BadInputError(f"{name}: {num_bytes} bytes; the limit is {limits.max_bytes}")


def json_name(value: object) -> str:
    return json.dumps(value) if value is None or isinstance(value, bool) else type(value).__name__


def depth_of(value: object) -> int:
    """Return how many objects and lists stand around the innermost value."""
    level: list[Any] = [value]
    depth = 0
    while level := [
        child
        for one in level
        if isinstance(one, (dict, list))
        for child in (one.values() if isinstance(one, dict) else one)
    ]:
        depth += 1
    return depth


def has_references(value: object) -> bool:
    if isinstance(value, dict):
        return isinstance(value.get("$ref"), str) or any(map(has_references, value.values()))
    return isinstance(value, list) and any(map(has_references, value))


def moved(value: Any) -> Any:
    """Return a schema whose references into itself hold once it stands at `ROOT`."""
    if isinstance(value, list):
        return [moved(row) for row in value]
    if not isinstance(value, dict):
        return value
    table = {word: row if word in DATA_WORDS else moved(row) for word, row in value.items()}
    reference = table.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        table["$ref"] = ROOT + reference[1:]
    return table


def part_of(root: object, pointer: str, part: Schema) -> Schema:
    """Return a schema that means what `part`, at `pointer` in `root`, means there."""
    if not has_references(part):
        return part
    return {"$ref": ROOT + quote(pointer, safe="/~$"), "$defs": {"root": moved(root)}}


def pointer_step(name: object) -> str:
    return "/" + str(name).replace("~", "~0").replace("/", "~1")


def children(schema: Schema) -> Iterator[tuple[str, Any]]:
    """Yield (the step of a JSON pointer, subschema)."""
    for word in WORDS_OF_SCHEMA:
        if isinstance(schema.get(word), dict):
            yield pointer_step(word), schema[word]
    for word in WORDS_OF_LIST:
        rows = schema.get(word)
        for at, row in enumerate(rows if isinstance(rows, list) else []):
            yield pointer_step(word) + pointer_step(at), row
    for word in WORDS_OF_TABLE:
        table = schema.get(word)
        for name, row in (table if isinstance(table, dict) else {}).items():
            yield pointer_step(word) + pointer_step(name), row


def pointer_names(pointer: str) -> list[str]:
    """Return the names and numbers that a pointer leads through."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def is_place(name: str, length: int) -> bool:
    """Say whether a step of a pointer is the number of an item of a list of this length."""
    return name.isdecimal() and len(name) <= len(str(length)) and int(name) < length


def resolved(root: object, pointer: str) -> Any:
    """Return what a pointer such as `/$defs/city` points at, None where that is nothing."""
    place = root
    for name in pointer_names(pointer):
        if isinstance(place, list) and is_place(name, len(place)):
            place = place[int(name)]
        elif isinstance(place, dict):
            place = place.get(name)
        else:
            return None
    return place


class ProblemFinder:
    """Finds the smallest part of a schema that is refused by itself.

    problem_of(part) raises CostlyGrammarError when no more parts can be asked for.
    """

    def __init__(self, root: JsonSchema, problem_of: ProblemOfPart) -> None:
        self.root = root
        self.problem_of = problem_of
        self.visited: set[str] = set()

    def find(self, problem: str, pointer: str = "") -> tuple[str, str]:
        """Return (pointer, problem) of the innermost place that has one and can be asked for."""
        with contextlib.suppress(CostlyGrammarError):
            while (inner := self.inner(pointer)) is not None:
                pointer, problem = inner
        return pointer, first_line(problem)

    def inner(self, pointer: str) -> tuple[str, str] | None:
        schema = resolved(self.root, pointer)
        self.visited.add(pointer)
        if not isinstance(schema, dict):
            return None
        for step, child in children(schema):
            if problem := self.problem_at(pointer + step, child):
                return pointer + step, problem
        return self.referred(schema.get("$ref"))

    def referred(self, reference: object) -> tuple[str, str] | None:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return None
        target = resolved(self.root, reference[1:])
        problem = self.problem_at(reference[1:], target) if isinstance(target, dict) else ""
        return (reference[1:], problem) if problem else None

    def problem_at(self, pointer: str, part: object) -> str:
        """Return the problem of a part by itself."""
        if pointer in self.visited or not isinstance(part, dict):
            return ""
        return self.problem_of(part_of(self.root, pointer, part))

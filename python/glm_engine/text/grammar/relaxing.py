"""Leaves out of a JSON schema that is not strict what cannot be enforced."""

from collections.abc import Callable, Container, Sequence
from typing import Any

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.schema import Schema
from glm_engine.text.grammar.schemas import (
    DATA_WORDS,
    ProblemFinder,
    ProblemOfPart,
    is_place,
    part_of,
    pointer_names,
    resolved,
)

CAUSES = (
    *("pattern", "format", "patternProperties", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    *("required", "oneOf", "anyOf", "allOf", "enum", "const", "$ref", "$id"),
    *("items", "prefixItems", "additionalItems", "additionalProperties", "properties"),
)


class Relaxation:
    """A schema from which, place by place, the word is left out that keeps it from compiling.

    problem_of(schema): why it does not compile, "" if it does; CostlyGrammarError where that can
    be asked no more.
    """

    def __init__(self, name: str, schema: Schema, problem_of: ProblemOfPart) -> None:
        self.name = name
        self.schema = schema
        self.problem_of = problem_of

    def relaxed(self) -> Schema:
        """Return what is left of the schema; BadInputError where that is no schema at all."""
        self.drop_patterns()
        self.relax("", lambda: self.problem_of(self.schema))
        return self.schema

    def drop_patterns(self) -> None:
        """Leave out every regular expression that is refused by itself, wherever it stands."""
        refused = {
            one
            for one in sorted(patterns_of(self.schema))
            if self.problem_of({"type": "string", "pattern": one})
        }
        self.schema = without_patterns(self.schema, refused) if refused else self.schema

    def relax(self, pointer: str, problem_there: Callable[[], str]) -> None:
        """Leave words out at and below a pointer until nothing is wrong there."""
        while problem := problem_there():
            place, problem = ProblemFinder(self.schema, self.problem_of).find(problem, pointer)
            self.mend(place, problem)

    def mend(self, pointer: str, problem: str) -> None:
        """Leave out one word of a place, or all but its type, so that it compiles by itself."""
        part = resolved(self.schema, pointer)
        parts = [
            {name: value for name, value in part.items() if name != word}
            for word in CAUSES
            if word in part
        ]
        for less in [*parts, {name: part[name] for name in ("type",) if name in part}]:
            schema = replaced(self.schema, pointer_names(pointer), less)
            if less != part and not self.problem_of(part_of(schema, pointer, less)):
                self.schema = schema
                return
        raise BadInputError(f"{self.name}#{pointer}: {problem}")


def patterns_of(value: object) -> set[str]:
    """Return the regular expressions of a schema."""
    if isinstance(value, list):
        return set().union(*map(patterns_of, value))
    if not isinstance(value, dict):
        return set()
    rows = [row for word, row in value.items() if word not in DATA_WORDS]
    found = set().union(*map(patterns_of, rows))
    if isinstance(value.get("pattern"), str):
        found.add(value["pattern"])
    if isinstance(value.get("patternProperties"), dict):
        found.update(value["patternProperties"])
    return found


def without_patterns(value: Any, refused: Container[str]) -> Any:
    """Return a schema without these regular expressions."""
    if isinstance(value, list):
        return [without_patterns(row, refused) for row in value]
    if not isinstance(value, dict):
        return value
    made = {
        word: row if word in DATA_WORDS else without_patterns(row, refused)
        for word, row in value.items()
        if not (word == "pattern" and isinstance(row, str) and row in refused)
    }
    if isinstance(table := made.get("patternProperties"), dict):
        made["patternProperties"] = {
            name: row for name, row in table.items() if name not in refused
        }
    return made


def replaced(value: Any, names: Sequence[str], part: Schema) -> Any:
    """Return a schema with another part at the place that the names lead to."""
    if not names:
        return part
    name, *rest = names
    if isinstance(value, list):
        if not is_place(name, len(value)):
            return value
        at = int(name)
        return [*value[:at], replaced(value[at], rest, part), *value[at + 1 :]]
    return {**value, name: replaced(value[name], rest, part)}

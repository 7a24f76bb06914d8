"""Tools as clients describe them: what the arguments of their calls may be."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.schema import Allowed, Schema, resolved, strings_of, types_of
from glm_engine.text.dialogue.tags import CALL_TAGS
from glm_engine.text.grammar.cost_limits import Limits
from glm_engine.text.grammar.documents import schema_grammar
from glm_engine.text.grammar.lark import checked_text
from glm_engine.text.grammar.proof import ProblemOf
from glm_engine.text.grammar.relaxing import Relaxation
from glm_engine.text.grammar.schemas import checked_schema, part_of, pointer_step, prepared
from glm_engine.text.grammar.schemas import resolved as found_at
from glm_engine.text.grammar.tidying import tidied

NAME = re.compile(r"[^\s<]{1,256}")
UNENFORCED = (
    *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "const", "enum"),
    *("patternProperties", "propertyNames", "unevaluatedProperties"),
    *("minProperties", "maxProperties"),
    *("dependencies", "dependentRequired", "dependentSchemas"),
)
OTHERS = "/additionalProperties"
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class Value:
    """What an argument may be: bare text, or JSON of other types than strings.

    strings: the texts that are allowed; None: any that does not read as JSON of `types`.
    json_schema: that of the JSON; None: none is allowed.
    """

    strings: Allowed
    types: frozenset[str]
    json_schema: Schema | None


@dataclass(frozen=True)
class Tool:
    """A function that can be called. `place` says where in the request it stands."""

    place: str
    name: str
    parameters: Schema
    strict: bool
    any_whitespace: bool

    def properties(self) -> Schema:
        return self.parameters.get("properties") or {}

    def required(self) -> list[str]:
        return self.parameters.get("required") or []

    def other_schema(self) -> Schema | None:
        """Return the schema of keys beyond `properties`, None where there are none.

        Without a word about them there are some only where no property is named.
        """
        other = self.parameters.get("additionalProperties", not self.properties())
        return None if other is False else {} if other is True else other

    def value(self, pointer: str, schema: Schema | None) -> Value:
        """Return what the argument at a pointer may be."""
        types = types_of(schema, self.parameters)
        strings = strings_of(schema, self.parameters)
        if types is None or schema is None:
            return Value(strings, frozenset(), None)
        others = types - {"string"}
        part = {**part_of(self.parameters, pointer, schema), "type": sorted(others)}
        json_schema = prepared(part, self.strict, self.any_whitespace) if others else None
        return Value(strings if "string" in types else frozenset(), others, json_schema)

    def json_values(self) -> Iterator[tuple[str, Schema]]:
        """Yield (pointer, schema) of the arguments that may be JSON."""
        named = {f"/properties{pointer_step(key)}": one for key, one in self.properties().items()}
        for pointer, schema in {**named, OTHERS: self.other_schema()}.items():
            if (found := self.value(pointer, schema).json_schema) is not None:
                yield pointer, found

    def relaxed(self, problem_of: ProblemOf) -> "Tool":
        """Return it without what cannot be enforced; BadInputError where it is no schema."""
        if self.strict:
            return self

        def problem_of_part(part: Schema) -> str:
            return problem_of(schema_grammar(prepared(part, False, self.any_whitespace)))

        relaxation = Relaxation(f"{self.place}.parameters", self.parameters, problem_of_part)

        def tool() -> "Tool":
            return replace(self, parameters=relaxation.schema)

        def problem_at(pointer: str) -> str:
            schema = tool().value(pointer, found_at(relaxation.schema, pointer)).json_schema
            return "" if schema is None else problem_of(schema_grammar(schema))

        relaxation.drop_patterns()
        for pointer, _ in list(tool().json_values()):
            relaxation.relax(pointer, partial(problem_at, pointer))
        return tool()

    def bare(self) -> "Tool":
        """Return it with any arguments, unless its schema is strict."""
        return self if self.strict else replace(self, parameters={"type": "object"})


def tools_of(
    tools: Iterable[Mapping[str, Any]], name: str | None, limits: Limits, any_whitespace: bool
) -> list[Tool]:
    """Return the tools that may be called, out of the OpenAI list."""
    found = [
        tool_of(f"tools[{at}].function", tool, limits, any_whitespace)
        for at, tool in enumerate(tools)
    ]
    chosen = [tool for tool in found if name is None or tool.name == name]
    if not chosen:
        known = ", ".join(tool.name for tool in found) or "none"
        raise BadInputError(f"tool_choice: no tool is named {name!r}; the tools are: {known}")
    return chosen


def tool_of(place: str, tool: Mapping[str, Any], limits: Limits, any_whitespace: bool) -> Tool:
    function = tool.get("function", tool)
    name = checked_text(f"{place}.name", function.get("name"))
    if not NAME.fullmatch(name):
        raise BadInputError(
            f"{place}.name: expected 1 to 256 characters without whitespace or '<', got {name!r}"
        )
    parameters = function.get("parameters")
    parameters = NO_PARAMETERS if parameters is None else parameters
    found = resolved(tidied(checked_schema(f"{place}.parameters", parameters, limits)))
    parameters, strict = found if isinstance(found, dict) else {}, bool(function.get("strict"))
    if not strict:
        parameters = spelt(parameters)
    check_parameters(f"{place}.parameters", parameters)
    if strict and (found := [word for word in UNENFORCED if word in parameters]):
        raise BadInputError(f"{place}.parameters#/{found[0]}: not supported in a strict tool")
    return Tool(place, name, parameters, strict, any_whitespace)


def spelt(parameters: Schema) -> Schema:
    """Return parameters without the arguments that no call can spell."""
    made, properties = dict(parameters), parameters.get("properties")
    if isinstance(properties, dict):
        made["properties"] = {key: properties[key] for key in properties if not tag_in(key)}
    if "required" in made:
        names = made["required"] if isinstance(made["required"], list) else []
        made["required"] = [key for key in names if key != str(key) or not tag_in(key)]
    return made


def check_parameters(place: str, parameters: Schema) -> None:
    """Refuse parameters that are not those of an object with named properties."""
    properties, required = parameters.get("properties"), parameters.get("required")
    types = parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        raise BadInputError(f"{place}#/type: expected object, got {parameters['type']!r}")
    if not isinstance(properties or {}, dict):
        raise BadInputError(f"{place}#/properties: expected an object")
    if not isinstance(required or [], list):
        raise BadInputError(f"{place}#/required: expected a list")
    for key in [*(properties or {}), *(required or [])]:
        if tag := tag_in(checked_text(f"{place}: a property name", key)):
            raise BadInputError(f"{place}: the property name {key!r} contains {tag}")


def tag_in(text: str) -> str:
    """Return a tag of calls that text holds, so that no call can hold the text; "" for none."""
    return next((tag for tag in CALL_TAGS if tag in text), "")

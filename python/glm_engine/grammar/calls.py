"""The grammar of GLM's tool calls, `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>`.

Strings stand bare and end at `</arg_value>`, other values are JSON by their schema.
"""

import re
from dataclasses import dataclass

from glm_engine.dialogue.schema import is_json_of, resolved, strings_of, types_of
from glm_engine.dialogue.tags import (
    ARG_KEY,
    ARG_KEY_END,
    ARG_VALUE,
    ARG_VALUE_END,
    CALL_TAGS,
    SPACES,
    THINK,
    THINK_END,
    TOOL_CALL,
    TOOL_CALL_END,
)
from glm_engine.errors import BadInputError
from glm_engine.grammar.lark import (
    alternatives,
    checked_text,
    inline_json,
    literal,
    optional,
    text_without,
)
from glm_engine.grammar.schemas import check_schema, check_size, part_of, pointer_step, prepared

NAME = re.compile(r"[^\s<]{1,256}")
WHITE = r"[ \t\r\n]*"
INTEGER = r"-?(0|[1-9][0-9]*)"
JSON_LOOKS = {
    "array": r"\[(?s:.)*",
    "boolean": "(true|false)",
    "integer": INTEGER,
    "null": "null",
    "number": rf"{INTEGER}(\.[0-9]+)?([eE][+-]?[0-9]+)?",
    "object": r"\{(?s:.)*",
}
UNENFORCED = (
    *("$ref", "allOf", "anyOf", "oneOf", "not", "if", "const", "enum"),
    *("patternProperties", "propertyNames", "unevaluatedProperties"),
    *("minProperties", "maxProperties"),
    *("dependencies", "dependentRequired", "dependentSchemas"),
)
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class Value:
    """What an argument may be: bare text, or JSON of other types than strings.

    strings: the texts that are allowed; None: any that does not read as JSON of `types`.
    json_schema: that of the JSON; None: none is allowed.
    """

    strings: frozenset | None
    types: frozenset
    json_schema: dict | None


@dataclass(frozen=True)
class Tool:
    """A function that can be called. `place` says where in the request it stands."""

    place: str
    name: str
    parameters: dict
    strict: bool
    any_whitespace: bool

    def properties(self):
        return self.parameters.get("properties") or {}

    def required(self):
        return self.parameters.get("required") or []

    def other_schema(self):
        """Return the schema of keys beyond `properties`, None where there are none.

        Without a word about them there are some only where no property is named.
        """
        other = self.parameters.get("additionalProperties", not self.properties())
        return None if other is False else {} if other is True else other

    def value(self, pointer, schema):
        """Return what the argument at a pointer may be."""
        types = types_of(schema, self.parameters)
        strings = strings_of(schema, self.parameters)
        if types is None:
            return Value(strings, frozenset(), None)
        others = types - {"string"}
        part = {**part_of(self.parameters, pointer, schema), "type": sorted(others)}
        json_schema = prepared(part, self.strict, self.any_whitespace) if others else None
        return Value(strings if "string" in types else frozenset(), others, json_schema)

    def json_values(self):
        """Yield (pointer, schema) of the arguments that may be JSON."""
        for key, schema in self.properties().items():
            pointer = "/properties" + pointer_step(key)
            if (found := self.value(pointer, schema).json_schema) is not None:
                yield pointer, found


def tools_of(tools, name, limits, any_whitespace):
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


def tool_of(place, tool, limits, any_whitespace):
    function = tool.get("function", tool)
    name = checked_text(f"{place}.name", function.get("name"))
    if not NAME.fullmatch(name):
        raise BadInputError(
            f"{place}.name: expected 1 to 256 characters, none white or '<', found {name!r}"
        )
    parameters = function.get("parameters")
    parameters = NO_PARAMETERS if parameters is None else parameters
    check_schema(f"{place}.parameters", parameters, limits)
    parameters, strict = resolved(parameters), bool(function.get("strict"))
    check_parameters(f"{place}.parameters", parameters)
    if strict and (found := [word for word in UNENFORCED if word in parameters]):
        raise BadInputError(f"{place}.parameters#/{found[0]}: not taken here in a strict tool")
    return Tool(place, name, parameters, strict, any_whitespace)


def check_parameters(place, parameters):
    """Refuse parameters that are not those of an object with named properties."""
    properties, required = parameters.get("properties"), parameters.get("required")
    if parameters.get("type", "object") != "object":
        raise BadInputError(f"{place}#/type: expected object, found {parameters['type']!r}")
    if not isinstance(properties or {}, dict):
        raise BadInputError(f"{place}#/properties: expected an object")
    if not isinstance(required or [], list):
        raise BadInputError(f"{place}#/required: expected a list")
    for key in [*(properties or {}), *(required or [])]:
        if tag := tag_in(checked_text(f"{place}: a name of a property", key)):
            raise BadInputError(f"{place}: the name {key!r} of a property holds {tag}")


def tag_in(text):
    """Return a tag of calls that text holds, so that no call can hold the text; "" for none."""
    return next((tag for tag in CALL_TAGS if tag in text), "")


class CallRules:
    """Writes the Lark rules of calls in one checkpoint's spelling, of so many bytes at most."""

    def __init__(self, spelling, tag, limits):
        self.spelling = spelling
        self.tag = tag
        self.limits = limits
        self.lines = []
        self.num_bytes = 0

    def add(self, line):
        self.lines.append(line)
        self.num_bytes += len(line.encode())
        check_size("tools", self.num_bytes, self.limits)

    def text(self, tools, at_least, at_most, document=None):
        """Return the grammar of between `at_least` and `at_most` (None: any number of) calls.

        Where no call need come, any text may come before the first. With the schema of a document,
        one such document may come instead of calls.
        """
        more = self.more_calls(max(at_least - 1, 0), None if at_most is None else at_most - 1)
        start = "calls" if at_least else "prose calls?"
        names = [self.add_call(number, tool) for number, tool in enumerate(tools)]
        return "\n".join(
            [
                f"start: {start}{'' if document is None else f' | {inline_json(document)}'}",
                f"prose: PROSE? (({self.tag(THINK)} | {self.tag(THINK_END)}) PROSE?)*",
                f"calls: {optional(self.spelling.before_first)} call {more}",
                f"call: {' | '.join(names)}",
                *self.lines,
                f"PROSE: {text_without(TOOL_CALL)}",
                "",
            ]
        )

    def more_calls(self, at_least, at_most):
        if at_most == 0:
            return ""
        most = "" if at_most is None else at_most
        return f"({literal(self.spelling.between_calls)} call){{{at_least},{most}}}"

    def add_call(self, number, tool):
        rule = f"call-{number}"
        pairs = [
            self.add_pair(f"{rule}-{at}", tool, key, schema)
            for at, (key, schema) in enumerate(named_arguments(tool).items())
        ]
        self.add(
            f"{rule}: {self.tag(TOOL_CALL)} {literal(tool.name)} {' '.join(pairs)} "
            f"{self.add_others(rule, tool)} {literal(self.spelling.before_end)} "
            f"{self.tag(TOOL_CALL_END)}"
        )
        return rule

    def add_pair(self, rule, tool, key, schema):
        value = self.value(tool, "/properties" + pointer_step(key), schema)
        self.add(f"{rule}: {self.pair(literal(key), value)}")
        return rule if key in tool.required() else f"{rule}?"

    def add_others(self, rule, tool):
        """Return the rule of keys that the schema does not name, "" where there are none."""
        schema = tool.other_schema()
        if schema is None:
            return ""
        key, named = f"KEY-{rule.upper()}", alternatives(named_arguments(tool))
        refused = f" & ~({named})" if named else ""
        self.add(f"{key}: /[^<>\\s][^<>\\n\\r]{{0,127}}/{refused}")
        value = self.value(tool, "/additionalProperties", schema)
        self.add(f"{rule}-other: {self.pair(key, value)}")
        return f"{rule}-other*"

    def pair(self, key, value):
        return (
            f"{literal(self.spelling.before_pair)} {self.tag(ARG_KEY)} {key} "
            f"{self.tag(ARG_KEY_END)} {literal(self.spelling.before_value)} "
            f"{self.tag(ARG_VALUE)} {value} {self.tag(ARG_VALUE_END)}"
        )

    def value(self, tool, pointer, schema):
        value, place = tool.value(pointer, schema), f"{tool.place}.parameters#{pointer}"
        found = [] if value.json_schema is None else [inline_json(value.json_schema)]
        if value.strings is None:
            found.append(f"{self.free_text(value.types)}?")
        elif texts := bare_texts(value):
            if wrong := [text for text in texts if tag_in(text)]:
                raise BadInputError(f"{place}: the text {wrong[0]!r} holds {tag_in(wrong[0])}")
            found.append(alternatives(texts))
        if not found:
            raise BadInputError(f"{place}: no text fits it")
        return f"({' | '.join(found)})"

    def free_text(self, types):
        """Return the terminal of text that does not read as JSON of these types."""
        names = sorted(types & JSON_LOOKS.keys())
        refused = "".join(f" & ~/{WHITE}{JSON_LOOKS[name]}{WHITE}/" for name in names)
        terminal = "-".join(["TEXT", *map(str.upper, names)])
        line = f"{terminal}: {text_without(*CALL_TAGS)}{refused}"
        if line not in self.lines:
            self.add(line)
        return terminal


def bare_texts(value):
    """Return the texts that a value allows and that read as no JSON of its other types."""
    return [
        text
        for text in sorted(value.strings)
        if not value.types or not is_json_of(text.strip(SPACES), value.types | {"string"})
    ]


def named_arguments(tool):
    """Return the arguments that the schema names, in its order, with their schemas."""
    other = tool.other_schema() or {}
    return {
        **tool.properties(),
        **{key: other for key in tool.required() if key not in tool.properties()},
    }

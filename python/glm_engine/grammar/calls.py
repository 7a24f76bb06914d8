"""The grammar of GLM's tool calls, `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>`.

Strings stand bare and end at `</arg_value>`, other values are JSON by their schema.
"""

import re
from dataclasses import dataclass, replace

from glm_engine.dialogue.schema import is_json_of, resolved, strings_of, types_of
from glm_engine.dialogue.tags import (
    ARG_KEY,
    ARG_KEY_END,
    ARG_VALUE,
    ARG_VALUE_END,
    SPACES,
    THINK,
    THINK_END,
    TOOL_CALL,
    TOOL_CALL_END,
)
from glm_engine.errors import BadInputError
from glm_engine.grammar.documents import schema_grammar
from glm_engine.grammar.lark import (
    alternatives,
    checked_text,
    inline_json,
    literal,
    optional,
    text_without,
)
from glm_engine.grammar.relaxing import Relaxation
from glm_engine.grammar.schemas import (
    check_schema,
    check_size,
    part_of,
    pointer_step,
    prepared,
)
from glm_engine.grammar.schemas import (
    resolved as found_at,
)
from glm_engine.grammar.tidying import tidied

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
OTHERS = "/additionalProperties"
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
        named = {f"/properties{pointer_step(key)}": one for key, one in self.properties().items()}
        for pointer, schema in {**named, OTHERS: self.other_schema()}.items():
            if (found := self.value(pointer, schema).json_schema) is not None:
                yield pointer, found

    def relaxed(self, problem_of):
        """Return it without what cannot be enforced; BadInputError where it is no schema."""
        if self.strict:
            return self

        def problem_of_part(part):
            return problem_of(schema_grammar(prepared(part, False, self.any_whitespace)))

        relaxation = Relaxation(f"{self.place}.parameters", self.parameters, problem_of_part)

        def tool():
            return replace(self, parameters=relaxation.schema)

        def problem_at(pointer):
            schema = tool().value(pointer, found_at(relaxation.schema, pointer)).json_schema
            return "" if schema is None else problem_of(schema_grammar(schema))

        relaxation.drop_patterns()
        for pointer, _ in list(tool().json_values()):
            relaxation.relax(pointer, lambda pointer=pointer: problem_at(pointer))
        return tool()

    def bare(self):
        """Return it with any arguments, unless its schema is strict."""
        return self if self.strict else replace(self, parameters={"type": "object"})


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
    parameters, strict = resolved(tidied(parameters)), bool(function.get("strict"))
    if not strict:
        parameters = spelt(parameters)
    check_parameters(f"{place}.parameters", parameters)
    if strict and (found := [word for word in UNENFORCED if word in parameters]):
        raise BadInputError(f"{place}.parameters#/{found[0]}: not taken here in a strict tool")
    return Tool(place, name, parameters, strict, any_whitespace)


def spelt(parameters):
    """Return parameters without the arguments that no call can spell."""
    made, properties = dict(parameters), parameters.get("properties")
    if isinstance(properties, dict):
        made["properties"] = {key: properties[key] for key in properties if ARG_KEY_END not in key}
    if "required" in made:
        names = made["required"] if isinstance(made["required"], list) else []
        made["required"] = [key for key in names if key != str(key) or ARG_KEY_END not in key]
    return made


def check_parameters(place, parameters):
    """Refuse parameters that are not those of an object with named properties."""
    properties, required = parameters.get("properties"), parameters.get("required")
    types = parameters.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        raise BadInputError(f"{place}#/type: expected object, found {parameters['type']!r}")
    if not isinstance(properties or {}, dict):
        raise BadInputError(f"{place}#/properties: expected an object")
    if not isinstance(required or [], list):
        raise BadInputError(f"{place}#/required: expected a list")
    for key in [*(properties or {}), *(required or [])]:
        if ARG_KEY_END in checked_text(f"{place}: a name of a property", key):
            raise BadInputError(f"{place}: the name {key!r} of a property holds {ARG_KEY_END}")


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
        pointer = f"/properties{pointer_step(key)}" if key in tool.properties() else OTHERS
        value = self.value(tool, pointer, schema)
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
        value = self.value(tool, OTHERS, schema)
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
            wrong = [text for text in texts if ARG_VALUE_END in text]
            if wrong and tool.strict:
                raise BadInputError(f"{place}: the text {wrong[0]!r} holds {ARG_VALUE_END}")
            if spelled := [text for text in texts if text not in wrong]:
                found.append(alternatives(spelled))
        if not found and not tool.strict:
            found.append(f"{self.free_text(frozenset())}?")
        if not found:
            raise BadInputError(f"{place}: no text fits it")
        return f"({' | '.join(found)})"

    def free_text(self, types):
        """Return the terminal of text that does not read as JSON of these types."""
        names = sorted(types & JSON_LOOKS.keys())
        refused = "".join(f" & ~/{WHITE}{JSON_LOOKS[name]}{WHITE}/" for name in names)
        terminal = "-".join(["TEXT", *map(str.upper, names)])
        line = f"{terminal}: {text_without(ARG_VALUE_END)}{refused}"
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

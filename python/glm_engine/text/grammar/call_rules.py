"""The grammar of GLM's tool calls, `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>`.

Strings stand bare and end at `</arg_value>`, other values are JSON by their schema.
"""

from collections.abc import Callable, Sequence

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.schema import Schema, is_json_of
from glm_engine.text.dialogue.tags import (
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
from glm_engine.text.grammar.cost_limits import Limits
from glm_engine.text.grammar.lark import alternatives, inline_json, literal, optional, text_without
from glm_engine.text.grammar.schemas import check_size, pointer_step
from glm_engine.text.grammar.spelling import CallSpelling
from glm_engine.text.grammar.tools import OTHERS, Tool, Value, tag_in

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


class CallRules:
    """Writes the Lark rules of calls in one checkpoint's spelling, of so many bytes at most."""

    def __init__(self, spelling: CallSpelling, tag: Callable[[str], str], limits: Limits) -> None:
        self.spelling = spelling
        self.tag = tag
        self.limits = limits
        self.lines: list[str] = []
        self.num_bytes = 0

    def add(self, line: str) -> None:
        self.lines.append(line)
        self.num_bytes += len(line.encode())
        check_size("tools", self.num_bytes, self.limits)

    def text(
        self,
        tools: Sequence[Tool],
        at_least: int,
        at_most: int | None,
        document: Schema | None = None,
    ) -> str:
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

    def more_calls(self, at_least: int, at_most: int | None) -> str:
        if at_most == 0:
            return ""
        most = "" if at_most is None else at_most
        return f"({literal(self.spelling.between_calls)} call){{{at_least},{most}}}"

    def add_call(self, number: int, tool: Tool) -> str:
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

    def add_pair(self, rule: str, tool: Tool, key: str, schema: Schema) -> str:
        pointer = f"/properties{pointer_step(key)}" if key in tool.properties() else OTHERS
        value = self.value(tool, pointer, schema)
        self.add(f"{rule}: {self.pair(literal(key), value)}")
        return rule if key in tool.required() else f"{rule}?"

    def add_others(self, rule: str, tool: Tool) -> str:
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

    def pair(self, key: str, value: str) -> str:
        return (
            f"{literal(self.spelling.before_pair)} {self.tag(ARG_KEY)} {key} "
            f"{self.tag(ARG_KEY_END)} {literal(self.spelling.before_value)} "
            f"{self.tag(ARG_VALUE)} {value} {self.tag(ARG_VALUE_END)}"
        )

    def value(self, tool: Tool, pointer: str, schema: Schema) -> str:
        value, place = tool.value(pointer, schema), f"{tool.place}.parameters#{pointer}"
        found = [] if value.json_schema is None else [inline_json(value.json_schema)]
        if value.strings is None:
            found.append(f"{self.free_text(value.types)}?")
        elif texts := bare_texts(value):
            wrong = [text for text in texts if tag_in(text)]
            if wrong and tool.strict:
                raise BadInputError(f"{place}: the value {wrong[0]!r} contains {tag_in(wrong[0])}")
            if spelled := [text for text in texts if text not in wrong]:
                found.append(alternatives(spelled))
        if not found and not tool.strict:
            found.append(f"{self.free_text(frozenset())}?")
        if not found:
            raise BadInputError(f"{place}: cannot match any text")
        return f"({' | '.join(found)})"

    def free_text(self, types: frozenset[str]) -> str:
        """Return the terminal of text that does not read as JSON of these types."""
        names = sorted(types & JSON_LOOKS.keys())
        refused = "".join(f" & ~/{WHITE}{JSON_LOOKS[name]}{WHITE}/" for name in names)
        terminal = "-".join(["TEXT", *map(str.upper, names)])
        line = f"{terminal}: {text_without(*CALL_TAGS)}{refused}"
        if line not in self.lines:
            self.add(line)
        return terminal


def bare_texts(value: Value) -> list[str]:
    """Return the texts that a value allows and that read as no JSON of its other types."""
    return [
        text
        for text in sorted(value.strings or ())
        if not value.types or not is_json_of(text.strip(SPACES), value.types | {"string"})
    ]


def named_arguments(tool: Tool) -> dict[str, Schema]:
    """Return the arguments that the schema names, in its order, with their schemas."""
    other = tool.other_schema() or {}
    return {
        **tool.properties(),
        **{key: other for key in tool.required() if key not in tool.properties()},
    }

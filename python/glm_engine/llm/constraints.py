"""What an answer is held to: the grammar of a form or of calls, and how its turn is read."""

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from glm_engine.core.errors import BadInputError
from glm_engine.llm.fields import mapping_of, text_of, wrong
from glm_engine.llm.messages import Message
from glm_engine.llm.sampling_params import StructuredOutputsParams
from glm_engine.text.dialogue import DialogueParser, Opening
from glm_engine.text.grammar import Draft, Grammar, GrammarCompiler

JSON_METHODS = ("json_object", "json_schema")
EXACT_METHODS = ("regex", "choice", "grammar")
CALL_METHODS = ("tool_calls", "calls_or_document")
MOST_KEPT = 64
ToolChoice = str | Mapping[str, object]


@dataclass(frozen=True)
class Constraint:
    """A call of the grammar compiler: its method and arguments."""

    method: str
    arguments: Sequence[object] = ()
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """How a turn begins, as `DialogueParser` and `AnswerFinder` take it."""

    in_reasoning: bool
    continues_turn: bool
    keeps_spaces: bool

    def arguments(self) -> dict[str, bool]:
        """Return the layout as keyword arguments."""
        return dict(vars(self))


def form_constraint(form: StructuredOutputsParams | None) -> Constraint | None:
    """Return the constraint of a form, None where none is asked for."""
    if form is None:
        return None
    options: dict[str, object] = {}
    if form.json is not None:
        options["name"] = "structured_outputs.json"
        return Constraint("json_schema", (schema_of(form.json),), spaced(form, options))
    if form.json_object:
        return Constraint("json_object", (), spaced(form, options))
    method = next(name for name in EXACT_METHODS if getattr(form, name) is not None)
    stated = getattr(form, method)
    value = list(stated) if method == "choice" else stated
    return Constraint(method, (value,), {"name": f"structured_outputs.{method}"})


def schema_of(stated: Mapping[str, object] | str) -> Mapping[str, object]:
    """Return a schema that may be stated as its text."""
    if not isinstance(stated, str):
        return stated
    try:
        return mapping_of("structured_outputs.json", json.loads(stated))
    except ValueError as error:
        raise BadInputError(f"structured_outputs.json: invalid JSON: {error}") from error


def spaced(form: StructuredOutputsParams | None, options: dict[str, object]) -> dict[str, object]:
    """Return options with a word on the white space of JSON."""
    stated = None if form is None else form.disable_any_whitespace
    return {**options, "any_whitespace": stated is False}


@dataclass(frozen=True)
class ToolUse:
    """The tools that the model is told of; whether it must call one, and which.

    takes_one: whether the answer ends with its first call.
    """

    tools: list[Message]
    is_required: bool = False
    name: str | None = None
    takes_one: bool = False

    @property
    def at_most(self) -> int | None:
        """How many calls may come."""
        return 1 if self.takes_one or self.name is not None else None


def tool_use(tools: list[Message], choice: ToolChoice, takes_one: bool) -> ToolUse:
    """Return how tools may be used: `choice` is none, auto, required, or names a function."""
    if choice == "none":
        return ToolUse([])
    if choice == "auto":
        return ToolUse(tools, takes_one=takes_one)
    if isinstance(choice, str) and choice != "required":
        named = "{'type': 'function', 'function': {'name': NAME}}"
        raise wrong("tool_choice", f"'none', 'auto', 'required' or {named}", choice)
    if not tools:
        raise BadInputError("tool_choice: expected at least one tool in tools")
    if isinstance(choice, str):
        return ToolUse(tools, True, None, takes_one)
    function = mapping_of("tool_choice.function", mapping_of("tool_choice", choice).get("function"))
    return ToolUse(tools, True, text_of("tool_choice.function.name", function.get("name")), True)


def chat_constraint(form: StructuredOutputsParams | None, use: ToolUse) -> Constraint | None:
    """Return what a chat's answer is held to; JSON may come instead of calls.

    Tools that say `strict` are held to their schemas where the model calls them unasked, too.
    """
    document = form_constraint(form)
    if use.is_required:
        if document is not None:
            raise BadInputError("structured_outputs: cannot be used with this tool_choice")
        named: dict[str, object] = {"name": use.name, "at_most": use.at_most}
        return Constraint("tool_calls", (use.tools,), spaced(form, named))
    if document is None:
        if not any(is_strict(tool) for tool in use.tools):
            return None
        free: dict[str, object] = {"at_least": 0, "at_most": use.at_most}
        return Constraint("tool_calls", (use.tools,), spaced(form, free))
    if not use.tools or document.method not in JSON_METHODS:
        return document
    schema = document.arguments or ({"type": "object"},)
    options = {**document.options, "at_most": use.at_most}
    return Constraint("calls_or_document", (use.tools, *schema), options)


def is_strict(tool: Message) -> bool:
    """Say whether a tool asks that its calls follow its schema."""
    return bool(mapping_of("tools", tool["function"]).get("strict"))


def layout_of(constraint: Constraint | None, opening: Opening, continues_turn: bool) -> Layout:
    """Return how a turn begins; what follows an expression keeps each of its characters."""
    is_exact = constraint is not None and constraint.method in EXACT_METHODS
    return Layout(
        in_reasoning=opening is Opening.THOUGHT,
        continues_turn=continues_turn or (is_exact and opening is Opening.ANSWER),
        keeps_spaces=is_exact,
    )


def parser_of(
    constraint: Constraint | None, layout: Layout, tools: Sequence[Message]
) -> DialogueParser:
    """Return the parser of an answer.

    What follows a schema or an expression is never read as calls, whatever it spells.
    """
    method = None if constraint is None else constraint.method
    return DialogueParser(
        tools=tools,
        parses_tool_calls=bool(tools) and method in (None, *CALL_METHODS),
        calls_come_first=method == "calls_or_document",
        **layout.arguments(),
    )


class Grammars:
    """Compiles grammars, and keeps the last `MOST_KEPT` for others who ask for the same."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        self.compiler = compiler
        self.proved: OrderedDict[str, Draft] = OrderedDict()
        self.built: dict[str, Grammar] = {}

    def close(self) -> None:
        """End the processes that prove grammars."""
        self.compiler.close()

    def compiled(self, constraint: Constraint) -> Grammar:
        """Return the grammar of a constraint; BadInputError where there is none."""
        draw = getattr(self.compiler, constraint.method)
        draft: Draft = draw(*constraint.arguments, **constraint.options)
        kept = self.built.get(draft.text)
        if kept is not None and kept.is_fresh:
            return kept
        if draft.text not in self.proved:
            self.proved[draft.text], _ = self.compiler.prove(draft)
        while len(self.proved) > MOST_KEPT:
            text, _ = self.proved.popitem(last=False)
            self.built.pop(text, None)
        grammar: Grammar = self.compiler.build(self.proved[draft.text])
        self.built[draft.text] = grammar
        return grammar

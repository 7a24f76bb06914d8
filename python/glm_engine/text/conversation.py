"""What a request asks for, by whatever interface it came: prompts, sampling, form, limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import orjson

from glm_engine.core.checks import FieldError

Json = dict[str, Any]
JSON_METHODS = ("json_object", "json_schema")
EXACT_METHODS = ("regex", "choice", "grammar")
CALL_METHODS = ("tool_calls", "calls_or_document")
UNLIMITED = -1
MAX_CHOICES = 128
MAX_STOPS = 32
MAX_STOP_CHARACTERS = 1024
MAX_BIASES = 1024
MAX_ALLOWED = 2**18
MAX_BAD_WORDS = 512
MAX_LOGPROBS = 20
MAX_TOKENS = 2**31 - 1
LEAST_PENALTY = 1.2e-38
OPENAI_DEFAULTS = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}


def sampling_defaults(stated: Mapping[str, Any]) -> Json:
    """Return what sampling fields that are None mean: what is stated, or else OpenAI's."""
    found = {
        name: default if stated.get(name) is None else stated[name]
        for name, default in OPENAI_DEFAULTS.items()
    }
    return found if stated.get("do_sample") is not False else {**found, "temperature": 0.0}


@dataclass(frozen=True)
class Constraint:
    """A call of the compiler: what `param` of the request asks for."""

    param: str
    method: str
    arguments: Sequence[Any] = ()
    options: Json = field(default_factory=dict)

    def spaced(self, any_whitespace: bool) -> "Constraint":
        """Return it with a word on the white space of its JSON, unless it has one or no JSON."""
        if self.method in EXACT_METHODS:
            return self
        return replace(self, options={"any_whitespace": any_whitespace, **self.options})


def answer_constraints(
    form: Sequence[Constraint],
    tools: Sequence[Json],
    must_call: bool,
    name: str | None = None,
    takes_one: bool = False,
    others: Sequence[Constraint] = (),
) -> list[Constraint]:
    """Return what a request asks for; where only calls may come, the answer's form says nothing.

    name: the tool that must be called. others: constraints that go with no call.
    """
    if must_call:
        return [*required_calls(tools, name, takes_one), *others]
    return free_constraints([*form, *others], tools, takes_one)


def format_constraints(
    kind: str, schema: Json | None, strict: bool | None, param: str, schema_param: str
) -> list[Constraint]:
    """Return what the form of an answer asks for: text, any JSON object, or JSON of a schema."""
    if kind == "text":
        return []
    if kind == "json_object":
        return [Constraint(param, "json_object")]
    if schema is None:
        raise FieldError(schema_param, "expected a JSON schema")
    options = {"strict": bool(strict), "name": schema_param}
    return [Constraint(schema_param, "json_schema", (schema,), options)]


def form_constraints(place: str, stated: Mapping[str, Any]) -> list[Constraint]:
    """Return what a form asks for; the name of each value is that of its field behind a place.

    A value that is None or False asks for nothing; a schema may be its text.
    """
    found = []
    for name, value in stated.items():
        param = f"{place}{name}"
        if value is None or value is False:
            continue
        if name == "json_object":
            found.append(Constraint(param, name))
        elif name == "json":
            arguments = (json_of(param, value) if isinstance(value, str) else value,)
            found.append(Constraint(param, "json_schema", arguments, {"name": param}))
        else:
            found.append(Constraint(param, name, (value,), {"name": param}))
    return found


def json_of(place: str, text: str) -> Any:
    """Return the value of a JSON text."""
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise FieldError(place, f"invalid JSON: {error}") from error


def spaced(constraints: list[Constraint], disables: bool | None) -> list[Constraint]:
    """Return constraints with what a request says of white space, None for nothing."""
    return constraints if disables is None else [one.spaced(not disables) for one in constraints]


def required_calls(tools: Sequence[Json], name: str | None, takes_one: bool) -> list[Constraint]:
    """Return the constraint under which nothing but calls may come; a named tool is called once."""
    if not tools:
        raise FieldError("tool_choice", "expected at least one tool in tools")
    options = {"name": name, "at_most": 1 if takes_one or name is not None else None}
    return [Constraint("tool_choice", "tool_calls", (tools,), options)]


def free_constraints(
    form: Sequence[Constraint], tools: Sequence[Json], takes_one: bool
) -> list[Constraint]:
    """Return what holds where no call is required; JSON may come instead of calls.

    Tools that say `strict` are held to their schemas where the model calls them unasked, too.
    """
    at_most = 1 if takes_one else None
    if not form and any(tool["function"].get("strict") for tool in tools):
        return [Constraint("tools", "tool_calls", (tools,), {"at_least": 0, "at_most": at_most})]
    return [calls_or(one, tools, at_most) for one in form]


def calls_or(form: Constraint, tools: Sequence[Json], at_most: int | None) -> Constraint:
    """Return the constraint of calls or, in their place, a document; without tools, of it alone."""
    if not tools or form.method not in JSON_METHODS:
        return form
    schema = form.arguments or ({"type": "object"},)
    options = {**form.options, "at_most": at_most}
    return Constraint(form.param, "calls_or_document", (tools, *schema), options)


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn and when they end; None stands for the model's default.

    place: what the names of its fields stand behind.
    """

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: Sequence[int] = ()
    bad_words: Sequence[str] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    priority: int = 0
    timeout_seconds: float | None = None
    place: str = ""

    @classmethod
    def of(cls, body: object, **stated: Any) -> "SamplingParams":
        """Take the fields of a request that have these names; null is as good as none."""
        found = {one.name: getattr(body, one.name, None) for one in fields(cls)} | stated
        return cls(**{name: value for name, value in found.items() if value is not None})


@dataclass(frozen=True)
class ChatPrompt:
    """What the chat template gets; `param` is the field that holds the messages."""

    messages: list[Json]
    tools: list[Json]
    variables: Json
    param: str = "messages"
    adds_turn: bool = True
    continues_turn: bool = False


@dataclass(frozen=True)
class TextPrompt:
    """A prompt without a template: a text, or token ids."""

    prompt: str | list[int]
    adds_special_tokens: bool = True
    is_echoed: bool = False


@dataclass(frozen=True)
class OutputLimit:
    """How many tokens may come.

    param: the field that says `max_tokens`. default: the limit where it says none, None for the
    room of the context. is_capped: more than the room is no error.
    """

    max_tokens: int | None
    param: str = "max_tokens"
    default: int | None = None
    is_capped: bool = False


@dataclass(frozen=True)
class ThinkingBudget:
    """The limits of a thought by the fields that state them, of which the least counts.

    effort: stands for a limit where no field states one.
    """

    stated: Mapping[str, int] = field(default_factory=dict)
    effort: str | None = None

    @classmethod
    def of(cls, body: Any, effort: str | None = None) -> "ThinkingBudget":
        names = ("thinking_budget", "thinking_token_budget")
        found = {name: getattr(body, name, None) for name in names}
        found["thinking.budget_tokens"] = body.thinking and body.thinking.budget_tokens
        return cls.stating(found, effort)

    @classmethod
    def stating(cls, found: Mapping[str, Any], effort: str | None = None) -> "ThinkingBudget":
        return cls(
            {name: one for name, one in found.items() if one not in (None, UNLIMITED)}, effort
        )


@dataclass(frozen=True)
class PromptLogprobs:
    """Log-probabilities of the prompt's tokens and of so many best ones, -1 for none at all.

    param: the field that asks. of_all: each choice lists them, not only the first.
    """

    num_best: int = -1
    param: str = "prompt_logprobs"
    of_all: bool = False


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What a request asks for, by whatever interface it came.

    prompts: one that a template renders, or texts and ids to continue.
    num_logprobs: alternatives to each token, -1 for no log-probabilities.
    truncation: how many of a prompt's last tokens are kept, -1 for what leaves room to answer.
    prediction: the text that the client expects.
    """

    prompts: Sequence[ChatPrompt | TextPrompt]
    limit: OutputLimit
    sampling: SamplingParams
    constraints: Sequence[Constraint] = ()
    budget: ThinkingBudget = ThinkingBudget()
    num_logprobs: int = -1
    prompt_logprobs: PromptLogprobs = PromptLogprobs()
    truncation: int | None = None
    prediction: str | None = None

    @property
    def chat(self) -> ChatPrompt | None:
        """The prompt that a template renders, None where texts are continued."""
        first = self.prompts[0]
        return first if isinstance(first, ChatPrompt) else None

    @property
    def param(self) -> str:
        """The field that holds the prompts."""
        return self.chat.param if self.chat else "prompt"

    @property
    def tools(self) -> list[Json]:
        return self.chat.tools if self.chat else []

    @property
    def continues_turn(self) -> bool:
        return bool(self.chat and self.chat.continues_turn)

    @property
    def method(self) -> str | None:
        """The method of the grammar compiler that the answer is held by."""
        return self.constraints[0].method if self.constraints else None

    def constraint(self, any_whitespace: bool = False) -> Constraint | None:
        """Return the one constraint that there may be, None where there is none."""
        if not self.constraints:
            return None
        found, *others = self.constraints
        if others:
            raise FieldError(others[0].param, f"cannot be used together with {found.param}")
        if self.sampling.ignore_eos:
            place = f"{self.sampling.place}ignore_eos"
            raise FieldError(place, f"cannot be used with {found.param}")
        return found.spaced(any_whitespace)

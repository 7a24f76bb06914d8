"""Chat messages as the checkpoint's own template takes them, and the text that it makes of them.

The template runs in a bounded process.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any

from glm_engine.core.bounded_process import (
    BoundedProcess,
    Bounds,
    NoAnswerError,
    OverspentError,
    ask_once_more,
)
from glm_engine.core.checks import FieldError, mapping_of, sequence_of, text_of, wrong
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_text
from glm_engine.core.layout import StrPath
from glm_engine.text.conversation import Json
from glm_engine.text.dialogue import whole_members
from glm_engine.text.tokenizer import TOKENIZER_CONFIG_FILE, tokenizer_config

Answer = dict[str, str]
TEMPLATE_FILE = "chat_template.jinja"
PROCESS = "glm_engine.text.template_process"
PROCESS_NAME = "the process that renders the chat template"
NOTHING: Mapping[str, object] = MappingProxyType({})
SPECIAL_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
BOUNDS = Bounds(seconds=2.0, patience_seconds=30.0, memory_bytes=1 << 29)
ENABLE_THINKING = "enable_thinking"
RESERVED_VARIABLES = frozenset({"self", "messages", "tools", "documents", "add_generation_prompt"})
ROLES = ("system", "developer", "user", "assistant", "tool", "function")
TEMPLATE_ROLES = {"developer": "system", "function": "tool"}
PART_TYPES = ("text", "refusal")
MOST_NAME_CHARACTERS = 256
FUNCTION_FIELDS = ("name", "description", "parameters", "strict")
CONTINUE = "continue_final_message"


class ChatTemplate:
    """The template of one checkpoint, and the processes that render it: one for each thread."""

    def __init__(
        self, model_dir: StrPath, bounds: Bounds = BOUNDS, template_file: StrPath | None = None
    ) -> None:
        config = tokenizer_config(model_dir)
        self.source, self.text = template_text(Path(model_dir), config, template_file)
        self.bounds = bounds
        self.special_tokens = {
            name: content(config[name]) for name in SPECIAL_TOKENS if config.get(name)
        }
        self.idle: list[BoundedProcess] = []
        self.running: list[BoundedProcess] = []
        self.lock = threading.Lock()
        self.is_closed = False
        self.idle.append(self.begun())

    def begun(self) -> BoundedProcess:
        """Return a process that has compiled the template."""
        process, answer = self.ask(self.started, self.text, "not a valid chat template")
        if "problem" in answer:
            process.stop()
        self.text_of(answer, "not a valid chat template")
        return process

    def started(self) -> BoundedProcess:
        """Return a process that knows no template yet."""
        limits = json.dumps([self.bounds.seconds, self.bounds.memory_bytes])
        with self.lock:
            if self.is_closed:
                raise NoAnswerError(f"{PROCESS_NAME} has ended")
            process = BoundedProcess(PROCESS_NAME, "-m", PROCESS, limits)
            self.running = [one for one in self.running if one.is_running] + [process]
        return process

    def ask(
        self, take: Callable[[], BoundedProcess], question: object, fault: str
    ) -> tuple[BoundedProcess, Answer]:
        """Return a process that `take` gives and its answer; BadInputError where it costs much."""
        try:
            return ask_once_more(take, question, self.bounds.patience_seconds)
        except OverspentError as error:
            message = f"{self.source}: {fault}: rendering takes more than {self.bounds}"
            raise BadInputError(message) from error

    def text_of(self, answer: Answer, fault: str) -> str:
        """Return the text of a process's answer; else BadInputError."""
        if "problem" in answer:
            raise BadInputError(f"{self.source}: {fault}: {answer['problem']}")
        return answer["text"]

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool = True,
        variables: Mapping[str, object] = NOTHING,
    ) -> str:
        """Return the prompt text of messages, each with a role and its content."""
        fault = "cannot render these messages"
        question = {"tools": None, "documents": None, **self.special_tokens, **variables}
        question |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        process, answer = self.ask(self.taken, question, fault)
        self.idle.append(process)
        return self.text_of(answer, fault)

    def taken(self) -> BoundedProcess:
        """Return a process that no other thread uses."""
        while self.idle:
            try:
                process = self.idle.pop()
            except IndexError:
                break
            if process.is_running:
                return process
        return self.begun()

    def close(self) -> None:
        """End the processes, and with them what threads ask them; none is started any more."""
        with self.lock:
            self.is_closed = True
            for process in self.running:
                process.kill()
        while self.idle:
            self.idle.pop().stop()


def template_of(folder: Path, template_file: StrPath | None = None) -> ChatTemplate | None:
    """Return the chat template, or None for a checkpoint that has none.

    template_file: takes the place of the checkpoint's.
    """
    try:
        return ChatTemplate(folder, template_file=template_file)
    except BadInputError:
        if template_file is not None or (folder / TEMPLATE_FILE).is_file():
            raise
        return None


def template_text(
    model_dir: Path, config: Mapping[str, Any], template_file: StrPath | None = None
) -> tuple[Path, str]:
    """Return where the template stands and its text."""
    path = Path(template_file or model_dir / TEMPLATE_FILE)
    if template_file or path.is_file():
        return path, read_text(path)
    found = config.get("chat_template")
    if isinstance(found, list):
        named = {row.get("name"): row.get("template") for row in found if isinstance(row, dict)}
        found = named.get("default")
    if not isinstance(found, str):
        raise BadInputError(
            f"{model_dir}: no chat template found; expected {TEMPLATE_FILE}, or chat_template in "
            f"{TOKENIZER_CONFIG_FILE}"
        )
    return model_dir / TOKENIZER_CONFIG_FILE, found


def content(token: Any) -> Any:
    """A special token is stated as text or as an object with its text in `content`."""
    return token.get("content", "") if isinstance(token, dict) else token


def checked_messages(place: str, messages: object) -> list[Json]:
    """Return messages that nobody has looked at as a template takes them."""
    rows = sequence_of(place, messages)
    if not rows:
        raise FieldError(place, "expected at least one message, got none")
    stated = [mapping_of(f"{place}[{at}]", one) for at, one in enumerate(rows)]
    return template_messages(place, stated)


def template_messages(place: str, stated: Sequence[Mapping[str, object]]) -> list[Json]:
    """Return messages as a template takes them: contents as text, arguments as objects.

    Results of tools come in the order of the calls that they answer.
    """
    made = [template_message(f"{place}[{at}]", one) for at, one in enumerate(stated)]
    return in_order_of_calls([one.get("role") == "tool" for one in stated], made)


def template_message(place: str, stated: Mapping[str, object]) -> Json:
    """Return one message as a template takes it."""
    role = stated.get("role")
    if role not in ROLES:
        raise wrong(f"{place}.role", f"one of {', '.join(ROLES)}", role)
    made: Json = {"role": TEMPLATE_ROLES.get(str(role), role)}
    if stated.get("content") is None and role != "assistant":
        raise FieldError(f"{place}.content", f"expected text in a message with role {role}")
    made["content"] = content_of(place, stated)
    for name in ("name", "tool_call_id"):
        if stated.get(name) is not None:
            made[name] = text_of(f"{place}.{name}", stated[name])
    thought = stated.get("reasoning_content") or stated.get("reasoning")
    if thought:
        made["reasoning_content"] = text_of(f"{place}.reasoning_content", thought)
    if stated.get("tool_calls") is not None:
        calls = sequence_of(f"{place}.tool_calls", stated["tool_calls"])
        made["tool_calls"] = [
            template_call(f"{place}.tool_calls[{at}]", call) for at, call in enumerate(calls)
        ]
    if stated.get("function_call") is not None and not made.get("tool_calls"):
        call = {"function": stated["function_call"]}
        made["tool_calls"] = [template_call(f"{place}.tool_calls[0]", call)]
    return made


def content_of(place: str, message: Mapping[str, object]) -> str:
    """Return the text of a message; a refusal is what the assistant said.

    Parts become text here: the templates of GLM-4.6 and 4.7 write those of a tool's result as
    Python objects.
    """
    content = message.get("content")
    if content is None or isinstance(content, str):
        found = content or ""
    else:
        parts = sequence_of(f"{place}.content", content)
        found = "".join(part_text(f"{place}.content[{at}]", part) for at, part in enumerate(parts))
    return found or text_of(f"{place}.refusal", message.get("refusal") or "")


def part_text(place: str, part: object) -> str:
    """Return the text of a part; a part that is no text is an error."""
    stated = mapping_of(place, part)
    kind = stated.get("type")
    if kind not in PART_TYPES:
        raise wrong(f"{place}.type", " or ".join(PART_TYPES), kind)
    return text_of(f"{place}.{kind}", stated.get(str(kind)))


def template_call(place: str, call: object) -> Json:
    """Return a call of an earlier answer, its arguments as an object."""
    stated = mapping_of(place, call)
    function = mapping_of(f"{place}.function", stated.get("function"))
    name = text_of(f"{place}.function.name", function.get("name"))
    arguments = call_arguments(f"{place}.function.arguments", function.get("arguments", "{}"))
    made: Json = {"type": "function", "function": {"name": name, "arguments": arguments}}
    if stated.get("id") is not None:
        made["id"] = text_of(f"{place}.id", stated["id"])
    return made


def call_arguments(place: str, arguments: object) -> Json:
    """Return the object that arguments are; of a call that was cut off, what was whole of it."""
    parsed = whole_members(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(parsed, Mapping | None):
        raise wrong(place, "a JSON object", arguments)
    return dict(parsed or {})


def in_order_of_calls(are_results: Sequence[bool], messages: Sequence[Json]) -> list[Json]:
    """Return messages with the results of one turn in the order of its calls.

    Templates render results without their ids. Where one names no call of the turn before, all
    stay as they came.
    """
    found: list[Json] = []
    numbers: dict[object, int] = {}
    for is_result, run in groupby(zip(are_results, messages, strict=True), itemgetter(0)):
        rows = [message for _, message in run]
        if not is_result:
            calls = rows[-1].get("tool_calls", ())
            numbers = {call["id"]: at for at, call in enumerate(calls) if call.get("id")}
        elif all(one.get("tool_call_id") in numbers for one in rows):
            rows.sort(key=lambda one: numbers[one["tool_call_id"]])
        found += rows
    return found


def template_tools(tools: object) -> list[Json]:
    """Return tools in OpenAI's form as a template takes them, their fields in one order."""
    if tools is None:
        return []
    return [
        template_tool(f"tools[{at}]", one) for at, one in enumerate(sequence_of("tools", tools))
    ]


def template_tool(place: str, tool: object) -> Json:
    """Return one tool with the fields that templates know."""
    stated = mapping_of(place, tool)
    if stated.get("type") != "function":
        raise wrong(f"{place}.type", "'function'", stated.get("type"))
    function = mapping_of(f"{place}.function", stated.get("function"))
    name = text_of(f"{place}.function.name", function.get("name"))
    if not 1 <= len(name) <= MOST_NAME_CHARACTERS:
        raise wrong(f"{place}.function.name", f"1 to {MOST_NAME_CHARACTERS} characters", name)
    if function.get("parameters") is not None:
        mapping_of(f"{place}.function.parameters", function["parameters"])
    found = {one: function[one] for one in FUNCTION_FIELDS if function.get(one) is not None}
    return {"type": "function", "function": found}


def check_continued(place: str, last: Json, adds_turn: bool | None) -> None:
    """Refuse to continue what is no text of the assistant's."""
    if adds_turn:
        problem = "cannot be used with add_generation_prompt; set one of them to false"
        raise FieldError(CONTINUE, problem)
    if last["role"] != "assistant" or last.get("tool_calls"):
        problem = (
            f"expected the last of {place} to be text of the assistant, got a message of "
            f"{last['role']}"
        )
        raise FieldError(CONTINUE, problem)


def lost_ending(text: str, message: Json) -> str:
    """Return the white space at the end of a last message that the template left out."""
    content: str = message["content"]
    return "" if text.endswith(content) else content[len(content.rstrip()) :]

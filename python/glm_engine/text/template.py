"""Chat messages to prompt text through the checkpoint's own template, in a bounded process."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
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
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_text
from glm_engine.core.layout import StrPath
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

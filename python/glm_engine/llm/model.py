"""What an engine needs beside its weights: tokenizer, template, grammars, sampling defaults."""

import threading
from pathlib import Path

from glm_engine.core.console import bytes_progress, cut_line
from glm_engine.core.engine import Engine, EngineOptions
from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from glm_engine.core.loading import say
from glm_engine.llm.grammars import Grammars
from glm_engine.llm.interrupts import uninterrupted
from glm_engine.llm.sampling_params import CHECKS
from glm_engine.text.conversation import OPENAI_DEFAULTS, Constraint, Json, sampling_defaults
from glm_engine.text.grammar import Grammar, GrammarCompiler
from glm_engine.text.grammar.spelling import spelling_of
from glm_engine.text.template import ChatTemplate, template_of
from glm_engine.text.tokenizer import GlmTokenizer

GENERATION_CONFIG_FILE = "generation_config.json"


def stated_defaults(path: Path) -> Json:
    """Return what the file says of sampling fields."""
    stated = read_object(path) if path.is_file() else {}
    for name in OPENAI_DEFAULTS:
        if stated.get(name) is not None:
            CHECKS[name](f"{path}: {name}", stated[name])
    return stated


def open_engine(options: EngineOptions, quiet: bool) -> Engine:
    """Return an engine with its weights loaded; Ctrl-C meanwhile takes effect when they are."""
    opened: list[Engine] = []
    try:
        with bytes_progress(quiet) as show:
            if show:
                options.progress = lambda done, total, stage: show(done, total, f"loading {stage}")
            uninterrupted(lambda: opened.append(Engine(options)))
    except BaseException:
        for engine in opened:
            engine.close()
        raise
    [engine] = opened
    if not quiet and (line := cut_line(engine.info())):
        say(line)
    return engine


class Model:
    """An engine with all that turns texts into its requests.

    The template and the grammar compiler have processes of their own, begun when first needed.
    """

    def __init__(self, folder: str, options: EngineOptions, quiet: bool) -> None:
        self.folder = Path(folder)
        self.tokenizer = GlmTokenizer(folder)
        self.defaults = sampling_defaults(stated_defaults(self.folder / GENERATION_CONFIG_FILE))
        self.engine = open_engine(options, quiet)
        info = self.engine.info()
        self.max_seq: int = info["max_seq"]
        self.max_batch: int = info["max_batch"]
        self.vocab_size: int = info["vocab_size"]
        self.ending_ids: frozenset[int] = frozenset(info["eos_tokens"])
        self.lock = threading.Lock()
        self.found_template: ChatTemplate | None = None
        self.made_grammars: Grammars | None = None
        self.is_closed = False

    def render(self, messages: list[Json], adds_turn: bool, variables: dict[str, object]) -> str:
        """Return the text that the chat template makes of messages; BadInputError without one."""
        text: str = uninterrupted(lambda: self.template().render(messages, adds_turn, variables))
        return text

    def template(self) -> ChatTemplate:
        found = self.template_or_none()
        if found is None:
            raise BadInputError(f"{self.folder}: this model has no chat template; use generate")
        return found

    def template_or_none(self) -> ChatTemplate | None:
        with self.lock:
            if self.found_template is None and not self.is_closed:
                self.found_template = template_of(self.folder)
            return self.found_template

    def grammars(self) -> Grammars:
        """Return the compiler of grammars."""
        template = self.template_or_none()
        with self.lock:
            if self.made_grammars is None:
                spelling = spelling_of(template)
                compiler = GrammarCompiler(
                    self.tokenizer, self.vocab_size, self.ending_ids, spelling
                )
                self.made_grammars = Grammars(compiler)
            return self.made_grammars

    def grammar(self, constraint: Constraint | None) -> Grammar | None:
        """Return the grammar of a constraint, None without one."""
        if constraint is None:
            return None
        return uninterrupted(lambda: self.grammars().compiled(constraint))

    def close(self) -> None:
        """Free the engine and end the processes."""
        with self.lock:
            self.is_closed = True
            if self.made_grammars is not None:
                self.made_grammars.close()
            if self.found_template is not None:
                self.found_template.close()
            self.engine.close()

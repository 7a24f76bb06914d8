"""Answers of an engine in this process."""

import secrets
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import StrPath
from glm_engine.core.loading import say
from glm_engine.core.runner import Generation, Prompt, Runner
from glm_engine.hub.names import name_of_folder
from glm_engine.server.choices import FINISH_REASONS
from glm_engine.server.generation_config import (
    read_generation_config,
    sampling_defaults,
    warn_of_unapplied,
)
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.openai.chat_messages import template_messages
from glm_engine.terminal.answer_settings import Settings
from glm_engine.terminal.ending import Ending
from glm_engine.terminal.history import MESSAGES, Message, checked
from glm_engine.terminal.session import LENGTH, Take
from glm_engine.text.dialogue import DialogueParser, Opening, opening_of
from glm_engine.text.template import ChatTemplate
from glm_engine.text.tokenizer import GlmTokenizer

GENERATION_CONFIG_FILE = "generation_config.json"
SEED_BITS = 64


class ModelText:
    """What turns messages into tokens and back: the checkpoint's files beside the weights."""

    def __init__(self, model_dir: StrPath) -> None:
        self.path = Path(model_dir)
        self.tokenizer = GlmTokenizer(model_dir)
        self.template = ChatTemplate(model_dir)
        path = self.path / GENERATION_CONFIG_FILE
        config = read_generation_config(path)
        warn_of_unapplied(path, config, say)
        self.defaults = sampling_defaults(config)

    def prompt(self, messages: Sequence[Message], settings: Settings) -> str:
        """Return the text that the template makes of messages; BadInputError where it cannot."""
        variables = {} if settings.thinks is None else {"enable_thinking": settings.thinks}
        try:
            sent = checked(MESSAGES, messages, "messages")
            found = template_messages(sent)
        except ApiError as error:
            raise BadInputError(error.detail) from error
        return self.template.render(found, variables={"tools": settings.tools or None, **variables})


def ending_of(generation: Generation, reason: str) -> Ending:
    times = [time - generation.submitted for time in generation.times] or [0.0]
    return Ending(
        reason,
        times[-1],
        times[0],
        len(generation.tokens),
        generation.prompt_tokens,
        generation.cached_tokens,
        generation.num_draft_tokens,
        generation.num_accepted_tokens,
    )


class EngineBackend:
    """Asks an engine of this process, one question at a time."""

    def __init__(self, engine: Engine, text: ModelText) -> None:
        self.engine, self.text = engine, text
        info = engine.info()
        self.max_seq = info["max_seq"]
        self.title = (
            f"{name_of_folder(text.path)} on {info['device']}, context {self.max_seq:,} tokens"
        )

    def answer(self, messages: Sequence[Message], settings: Settings, take: Take) -> Ending:
        """Give the deltas of the answer to `take`; returns its `Ending`."""
        prompt = self.text.prompt(messages, settings)
        parser = DialogueParser(
            opening_of(prompt) is Opening.THOUGHT,
            settings.tools,
            parses_tool_calls=bool(settings.tools),
        )
        job = Prompt(self.request(prompt, settings))
        with closing(Runner(self.engine, self.text.tokenizer).run([job])) as pieces:
            for generation, text, is_finished in pieces:
                take(parser.push(text))
                if is_finished:
                    reason = FINISH_REASONS.get(generation.finish_reason, generation.finish_reason)
                    take(parser.finish(is_cut=reason == LENGTH))
        return ending_of(generation, reason)

    def request(self, prompt: str, settings: Settings) -> Request:
        """Return the engine's request; BadInputError where the conversation fills the context."""
        tokens = self.text.tokenizer.encode(prompt, add_special_tokens=False)
        room = self.max_seq - len(tokens)
        if room <= 0:
            raise BadInputError(
                f"the conversation has {len(tokens)} tokens and the context length is "
                f"{self.max_seq}, so no room is left for an answer; start over with /clear or "
                "raise --max-seq"
            )
        max_tokens = settings.sampling.get("max_tokens", 0)
        if max_tokens > room:
            raise BadInputError(
                f"the context length is {self.max_seq} tokens; this conversation needs "
                f"{len(tokens) + max_tokens} ({len(tokens)} in the prompt, {max_tokens} to "
                "generate): lower --max-tokens (or /set max_tokens N), or raise --max-seq"
            )
        values = {"seed": secrets.randbits(SEED_BITS), **self.text.defaults, **settings.sampling}
        wanted = values.pop("max_tokens", room)
        return Request(tokens, max_tokens=min(wanted, room), sampling=Sampling(**values))

    def close(self) -> None:
        self.text.template.close()

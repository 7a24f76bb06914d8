"""The loop of a conversation: read, ask, show, keep."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from glm_engine.core.engine_words import for_users
from glm_engine.core.errors import GlmError
from glm_engine.server.openai.answer_events import Answer, message_delta
from glm_engine.terminal import slash
from glm_engine.terminal.answer_settings import Settings
from glm_engine.terminal.display import Display, note
from glm_engine.terminal.ending import Ending
from glm_engine.terminal.history import ASSISTANT, Conversation, Message
from glm_engine.text.dialogue import Delta

LENGTH = "length"
NO_ANSWER = "the model gave an empty answer"
LEFT_OUT = ("refusal", "reasoning")
Take = Callable[[Iterable[Delta]], None]


class Backend(Protocol):
    """What answers: an engine of this process, or a server."""

    title: str

    def answer(self, messages: Sequence[Message], settings: Settings, take: Take) -> Ending:
        """Give the deltas of the answer to `take`; returns its `Ending`."""

    def close(self) -> None:
        """End what stays open between questions."""


class Reader(Protocol):
    """Where a user's messages come from."""

    goes_on_after_errors: bool
    was_interrupted: bool

    def read(self) -> str | None:
        """Return the next message, None where the user leaves."""


@dataclass
class Session:
    """One user, one backend, one conversation."""

    backend: Backend
    reader: Reader
    display: Display
    conversation: Conversation
    settings: Settings
    is_over: bool = False

    def run(self) -> None:
        """Read and answer until the user leaves."""
        while not self.is_over and (text := self.reader.read()) is not None:
            try:
                self.take(text)
            except GlmError as error:
                if not self.reader.goes_on_after_errors:
                    raise
                note(for_users(error))

    def take(self, text: str) -> None:
        if text.strip() and not slash.obey(self, text):
            self.say({"role": "user", "content": text})

    def ask_once(self, question: str) -> None:
        """Answer one question, which is never a command."""
        self.say({"role": "user", "content": question})

    def show(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.display.write(f"{line}\n")

    def say(self, message: Message) -> None:
        """Ask with one more message, which is taken back where nothing comes of it."""
        self.conversation.unanswered = message
        self.ask([*self.conversation.messages, message])

    def ask(self, messages: Sequence[Message]) -> None:
        """Show the answer to messages, and keep both."""
        answer = Answer()

        def take(deltas: Iterable[Delta]) -> None:
            answer.take(message_delta(deltas), None)
            self.display.take(deltas)

        try:
            ending = self.backend.answer(messages, self.settings, take)
        except KeyboardInterrupt:
            if not self.reader.goes_on_after_errors:
                raise
            self.reader.was_interrupted = True
            note(self.end_early(messages, answer))
        except GlmError:
            self.end_early(messages, answer)
            raise
        else:
            self.end(messages, answer, ending)

    def end(self, messages: Sequence[Message], answer: Answer, ending: Ending) -> None:
        """Keep a whole answer, and say what was odd about its end."""
        self.display.end()
        message = {name: value for name, value in answer.message().items() if name not in LEFT_OUT}
        self.conversation.keep(messages, message)
        if ending.reason == LENGTH:
            note("the answer was cut off: it reached max_tokens or filled the context")
        elif not message["content"] and not message.get("tool_calls"):
            has_thought = "reasoning_content" in message
            note("the model produced only thinking and no answer" if has_thought else NO_ANSWER)
        if self.settings.is_verbose:
            note(ending.line())

    def end_early(self, messages: Sequence[Message], answer: Answer) -> str:
        """Keep the text of an answer that was broken off; return what became of the question."""
        self.display.end()
        if text := answer.message()["content"]:
            self.conversation.keep(messages, {"role": ASSISTANT, "content": text})
            return "stopped"
        return "stopped before the answer began; /retry asks again"

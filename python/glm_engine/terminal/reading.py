"""Lines that a user writes, and when they are a whole message."""

import sys

from glm_engine.core.errors import BadInputError

QUOTES = '"""'
CONTINUED = "\\"


def is_whole(text: str) -> bool:
    """Say whether a message ends here: not inside quotes, and not behind a backslash."""
    if text.lstrip().startswith(QUOTES):
        inside = text.lstrip().removeprefix(QUOTES)
        return inside.rstrip().endswith(QUOTES)
    return not text.endswith(CONTINUED)


def message_of(text: str) -> str:
    """Return the message without the marks that kept it open over several lines."""
    bare = text.strip()
    if bare.startswith(QUOTES) and is_whole(text):
        return bare.removeprefix(QUOTES).removesuffix(QUOTES).strip("\n")
    return text.replace(f"{CONTINUED}\n", "\n")


class LineReader:
    """Reads standard input where no terminal is; what goes wrong there ends the command."""

    goes_on_after_errors = False
    was_interrupted = False

    def read(self) -> str | None:
        """Return the next message, None at the end."""
        text = self.line()
        while text is not None and not is_whole(text):
            more = self.line()
            if more is None:
                raise BadInputError("standard input ended inside a multi-line message")
            text = f"{text}\n{more}"
        return None if text is None else message_of(text)

    def line(self) -> str | None:
        """Return the next line without its end, None where there is none."""
        line = sys.stdin.buffer.readline()
        if not line:
            return None
        return decoded(line).removesuffix("\n").removesuffix("\r")


def decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"standard input is not valid UTF-8: {error}") from error


def with_piped_text(question: str) -> str:
    """Return a question behind the text that is piped to standard input, if any."""
    if sys.stdin.isatty():
        return question
    piped = decoded(sys.stdin.buffer.read()).strip("\r\n")
    return f"{piped}\n\n{question}" if piped else question

"""The process in which a chat template is compiled and renders.

The first question is the template's text, each later one the variables of a conversation. An
answer has the `text`, or the `problem` in a line.

The environment is the one that transformers gives a template, so that a template renders the same
text here and there.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from glm_engine.core.bounded_process import answer_questions

MOST_CHARACTERS = 1 << 24
MOST_OF_PROBLEM = 500


class Renderer:
    """Answers with one template, which is its first question.

    A template that wants more memory than it may have ends the process, as one does that takes
    more time: neither has an answer.
    """

    template: jinja2.Template | None = None

    def answer(self, question: Any) -> dict[str, str]:
        try:
            if self.template is None:
                self.template = compiled(question)
                return {"text": ""}
            text = self.template.render(question)
        except MemoryError:
            raise
        except Exception as error:
            return {"problem": line_of(error)}
        if len(text) > MOST_CHARACTERS:
            size = f"{len(text)} characters; the limit is {MOST_CHARACTERS}"
            return {"problem": f"the rendered prompt has {size}"}
        return {"text": text}


def line_of(error: Exception) -> str:
    """Return what a template says itself as it stands, and the kind of any other error."""
    is_said = isinstance(error, jinja2.TemplateError)
    text = str(error) if is_said else f"{type(error).__name__}: {error}"
    return " ".join(text[:MOST_OF_PROBLEM].split())


def compiled(text: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    return environment.from_string(text)


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


if __name__ == "__main__":
    answer_questions(Renderer().answer)

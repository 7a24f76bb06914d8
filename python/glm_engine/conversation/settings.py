"""What a user may set of an answer, and all that is asked at once."""

from dataclasses import dataclass, field

import click

from glm_engine import options
from glm_engine.errors import BadInputError

SETTINGS = {
    "temperature": options.Finite(min=0),
    "top_p": options.Finite(0, 1),
    "top_k": options.NOT_NEGATIVE,
    "min_p": options.Finite(0, 1),
    "repetition_penalty": options.Finite(min=0),
    "frequency_penalty": options.Finite(-2, 2),
    "presence_penalty": options.Finite(-2, 2),
    "seed": options.SEED,
    "max_tokens": options.POSITIVE,
}
DEFAULTS = {"seed": "a fresh one for each answer", "max_tokens": "what the context leaves"}
DEFAULT_OF_OTHERS = "the model's"
DEFAULT = "default"


@dataclass
class Settings:
    """What goes with each question; None and what is not in `sampling` are the model's defaults."""

    sampling: dict = field(default_factory=dict)
    thinks: bool | None = None
    tools: tuple = ()

    def change(self, name, text):
        """Set one value from its text; `default` takes it back."""
        if name not in SETTINGS:
            raise BadInputError(f"/set {name}: expected one of {', '.join(SETTINGS)}")
        if text == DEFAULT:
            self.sampling.pop(name, None)
            return
        try:
            self.sampling[name] = SETTINGS[name].convert(text, None, None)
        except click.BadParameter as error:
            raise BadInputError(f"/set {name}: {error.message}") from error

    def lines(self):
        """Return a line for each value."""
        return [f"{name} {self.sampling.get(name, DEFAULT)}" for name in SETTINGS]

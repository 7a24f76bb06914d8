"""What a user may set of an answer, and all that is asked at once."""

from dataclasses import dataclass, field
from typing import Any

import click

from glm_engine.cli import options
from glm_engine.cli.option_types import POSITIVE, Finite, Whole
from glm_engine.core.errors import BadInputError

SETTINGS: dict[str, Finite | Whole] = {
    **{name: kind for name, kind in options.SAMPLING_TYPES.items() if name != "num_logprobs"},
    "max_tokens": POSITIVE,
}
DEFAULTS = {"seed": "a new seed for each answer", "max_tokens": "the rest of the context"}
DEFAULT_OF_OTHERS = "the model's default"
HELP = {**options.SAMPLING_HELP, "max_tokens": "Maximum number of tokens in an answer."}
DEFAULT = "default"


@dataclass
class Settings:
    """What goes with each question.

    The model's defaults hold for `thinks` where it is None, and for what `sampling` leaves out.
    """

    sampling: dict[str, Any] = field(default_factory=dict)
    thinks: bool | None = None
    tools: tuple[dict[str, Any], ...] = ()
    is_verbose: bool = False

    def change(self, name: str, text: str) -> None:
        """Set one value from its text; the text `default` resets it."""
        if name not in SETTINGS:
            known = ", ".join(SETTINGS)
            raise BadInputError(f"/set {name}: unknown setting; expected one of {known}")
        if text == DEFAULT:
            self.sampling.pop(name, None)
            return
        try:
            self.sampling[name] = SETTINGS[name].convert(text, None, None)
        except click.BadParameter as error:
            raise BadInputError(f"/set {name}: {error.message}") from error

    def line(self, name: str) -> str:
        """Return the name of a value and the value."""
        return f"{name} = {self.sampling.get(name, DEFAULT)}"

    def lines(self) -> list[str]:
        """Return a line for each value."""
        return [self.line(name) for name in SETTINGS]

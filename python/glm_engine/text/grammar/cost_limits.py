"""What a grammar may cost; the README says what each number was chosen by."""

from dataclasses import dataclass
from typing import TypedDict


@dataclass(frozen=True)
class Limits:
    """Bounds of what a client's schema may ask for.

    seconds: processor time of all that is done for one grammar; patience_seconds: the same by the
    clock; quick_seconds, quick_patience_seconds: the same for one that is to hold up nobody.
    memory_bytes: what compiling it may add to a process.
    """

    max_bytes: int = 131_072
    max_depth: int = 64
    seconds: float = 2.0
    quick_seconds: float = 0.2
    quick_patience_seconds: float = 0.5
    patience_seconds: float = 10.0
    memory_bytes: int = 64 << 20


class ParserLimits(TypedDict):
    """Those of llguidance's `LLParserLimits` that are not its defaults."""

    initial_lexer_fuel: int
    step_lexer_fuel: int
    step_max_items: int
    max_lexer_states: int
    max_grammar_size: int
    verbose_errors: bool


PARSER_LIMITS: ParserLimits = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 50_000,
    "max_grammar_size": 500_000,
    "verbose_errors": False,
}


REWORDED = {
    "panic: ": "the grammar compiler does not support this",
    "NoExtensionBias": "cannot match any text",
    "oneOf constraints are not supported": "the alternatives of oneOf may overlap; use anyOf",
}


def first_line(problem: str) -> str:
    """Return an error of llguidance without its picture of the place and its back trace."""
    lines = [line.strip() for line in problem.splitlines() if line.strip()]
    stated = [line for line in lines if line.startswith("error: ")]
    line = (stated or lines or [""])[0].removeprefix("error: ")
    return next((text for begin, text in REWORDED.items() if line.startswith(begin)), line)

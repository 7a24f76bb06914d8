"""How many draft tokens an engine accepted, by what `Engine.info` counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from glm_engine.core.abi import SPECULATE
from glm_engine.core.reports import EngineInfo

DraftCount = Literal["num_drafts", "num_draft_tokens", "num_accepted_tokens"]
COUNTS: tuple[DraftCount, ...] = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


@dataclass(frozen=True)
class Speculation:
    """How draft tokens are found, and at most how many a forward pass checks for a request."""

    method: str
    max_draft_tokens: int

    def __str__(self) -> str:
        return f"lookup:{self.max_draft_tokens}" if self.method == "lookup" else self.method


def speculation_of(info: EngineInfo) -> str:
    """Return the method by which an engine finds draft tokens."""
    return next(name for name, number in SPECULATE.items() if number == info["speculate"])


def looks_up(info: EngineInfo) -> bool:
    """Say whether an engine copies draft tokens, so that the text that is expected helps it."""
    return speculation_of(info) in ("lookup", "auto")


def stated_speculation(info: EngineInfo) -> str:
    """Return what `--speculate` states for an engine, with the number of lookup:N."""
    return str(Speculation(speculation_of(info), info["max_draft_tokens"]))


def gained(info: EngineInfo, before: EngineInfo | None = None) -> dict[str, int]:
    """Return the counts of drafts since those that `before` holds, or since the start."""
    return {name: info[name] - (before[name] if before else 0) for name in COUNTS}


def acceptance_length(counts: Mapping[str, float]) -> float | None:
    """Return the mean number of tokens of a request in a forward pass with drafts of it, or None.

    The token behind the accepted ones counts too: without any draft accepted it is 1.
    """
    drafts = counts["num_drafts"]
    return 1 + counts["num_accepted_tokens"] / drafts if drafts else None


def acceptance_rate(counts: Mapping[str, float]) -> float | None:
    """Return the share of draft tokens that were accepted, 0 to 1, or None."""
    drafted = counts["num_draft_tokens"]
    return counts["num_accepted_tokens"] / drafted if drafted else None


def accepted_line(accepted: int, drafted: int) -> str:
    """Return how many draft tokens were accepted, as the figures of an answer state it."""
    return f"draft tokens: {accepted:,} of {drafted:,} accepted"

"""A measured number beside the limit that it must keep."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum


class Bound(Enum):
    """On which side of its limit a figure must lie."""

    AT_MOST = "≤"
    AT_LEAST = "≥"
    NONE = ""


@dataclass(frozen=True)
class Figure:
    """One row of the table. `limit` is None where the number is for information."""

    name: str
    value: float
    unit: str
    bound: Bound = Bound.NONE
    limit: float | None = None
    note: str = ""

    @property
    def is_kept(self) -> bool:
        """Whether the limit holds; a number that is none (NaN) keeps no limit."""
        if self.bound is Bound.AT_MOST:
            return self.value <= self.limit
        if self.bound is Bound.AT_LEAST:
            return self.value >= self.limit
        return True

    def as_dict(self) -> dict:
        return {**asdict(self), "bound": self.bound.value, "is_kept": self.is_kept}


@dataclass(frozen=True)
class Section:
    """The figures of one benchmark, how they came about, and the data of its plot."""

    name: str
    title: str
    method: str
    figures: Sequence[Figure]
    series: dict

    def as_dict(self) -> dict:
        rows = [figure.as_dict() for figure in self.figures]
        return {
            "name": self.name,
            "title": self.title,
            "method": self.method,
            "figures": rows,
            "series": self.series,
        }


def readable(value: float, unit: str) -> str:
    """A number with four significant digits, whole from 1,000 on, and its unit."""
    digits = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{digits} {unit}".strip()


def readable_limit(figure: Figure) -> str:
    if figure.bound is Bound.NONE:
        return ""
    return f"{figure.bound.value} {readable(figure.limit, figure.unit)}"

"""The types of options: numbers with bounds, sizes, shares of memory, drafts, checkpoints."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import click

from glm_engine.cli.peer_values import ShareOfAll
from glm_engine.core.abi import MAX_DRAFT_TOKENS
from glm_engine.core.acceptance import Speculation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHARE = re.compile(r"[01]?\.\d{1,9}")
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
MOST, MOST_BYTES = 2**31 - 1, 2**63 - 1
LEAST_BYTES = 1 << 20
MOST_CHARACTERS = 40
KV_NAMES = {"fp8": "fp8_e4m3", "bf16": "bfloat16"}
POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Whole(click.types.IntParamType):
    """A whole number of a range that is bounded at both ends."""

    name = "n"

    def __init__(self, least: int, most: int = MOST) -> None:
        self.min, self.max = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        expected = f"{self.min} to {self.max}"
        refuse_long(self, value, expected, param, ctx)
        try:
            number = int(value)
        except ValueError:
            self.fail(f"expected a whole number, got {value!r}", param, ctx)
        if not self.min <= number <= self.max:
            self.fail(f"expected {expected}, got {number}", param, ctx)
        return number


def refuse_long(
    kind: click.ParamType[Any],
    value: object,
    expected: str,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> None:
    """Refuse a text that is too long for any number, without reading its digits."""
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        kind.fail(f"expected {expected}, got {len(value)} characters", param, ctx)


POSITIVE = Whole(1)
NOT_NEGATIVE = Whole(0)
SEED = Whole(0, 2**64 - 1)


class ByteSize(click.ParamType[Any]):
    """A number of bytes: 1048576, 512MB, 80GiB."""

    name = "size"
    known = "a size, e.g. 512MB or 80GiB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, int):
            return value
        refuse_long(self, value, f"0 to {MOST_BYTES} bytes", param, ctx)
        match = SIZE.fullmatch(value.strip())
        if not match:
            self.fail(f"expected {self.known}, got {value!r}", param, ctx)
        number, unit, binary = match.groups()
        size = Fraction(number) * (1024 if binary else 1000) ** POWERS[unit.lower()]
        if size > MOST_BYTES:
            self.fail(f"expected 0 to {MOST_BYTES} bytes, got {value!r}", param, ctx)
        if 0 < size < 1:
            self.fail(f"{value!r} is less than a byte; expected {self.known}", param, ctx)
        return int(size)


class PositiveSize(ByteSize):
    """A number of bytes above 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        size = super().convert(value, param, ctx)
        if size == 0:
            self.fail(f"expected {self.known}, got {value!r}", param, ctx)
        if size < LEAST_BYTES and str(value).strip().isdigit():
            self.fail(f"{value!r} means {value} bytes; did you mean {value}GB?", param, ctx)
        return size


class SizeOfOne(PositiveSize):
    """The memory of one GPU, where users may also state how many there are: 4x141GB."""

    several = re.compile(r"(\d{1,4})\s*[xX*]\s*(\d.*)")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = self.several.fullmatch(value.strip()) if isinstance(value, str) else None
        if found:
            size = super().convert(found[2], param, ctx) and found[2]
            text = f"give the memory of one GPU ({size}) and --world-size {found[1]}"
            self.fail(f"expected one size, got {value!r}: {text}", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True)
class FreeShare:
    """Whole hundredths of the memory that a device has free."""

    percent: int


class MemoryLimit(PositiveSize):
    """A number of bytes above 0, or a share of free memory: 0.9; or another engine's share."""

    name = "size|fraction"
    known = "a size, e.g. 80GB or 80GiB, or a fraction of free memory, e.g. 0.9"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, ShareOfAll):
            return value
        if not isinstance(value, str) or not SHARE.fullmatch(value.strip()):
            return super().convert(value, param, ctx)
        percent = 100 * Fraction(value.strip())
        if percent.denominator != 1 or not 1 <= percent <= 100:
            text = f"expected a fraction from 0.01 to 1.0 in steps of 0.01, got {value!r}"
            self.fail(text, param, ctx)
        return FreeShare(int(percent))


class KvDtype(click.Choice[str | None]):
    """A data type of the KV cache, also by the names of other engines; auto is the default."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | None:
        return None if value == "auto" else super().convert(KV_NAMES.get(value, value), param, ctx)


class WorldSize(Whole):
    """A number of GPUs or ranks, or auto, which is the engine's 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return 0 if value == "auto" else super().convert(value, param, ctx)


class Speculate(click.ParamType[Speculation]):
    """off, lookup:N, mtp, or auto, which is up to as many draft tokens as there can be."""

    name = "off|lookup:N|mtp|auto"
    lookup = re.compile(r"lookup:(\d{1,9})")
    numbers: ClassVar = {"off": 0, "mtp": 1, "auto": MAX_DRAFT_TOKENS}

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Speculation:
        if isinstance(value, Speculation):
            return value
        if value in self.numbers:
            return Speculation(value, self.numbers[value])
        found = self.lookup.fullmatch(value)
        if not found or not 1 <= int(found[1]) <= MAX_DRAFT_TOKENS:
            expected = f"off, lookup:N with N from 1 to {MAX_DRAFT_TOKENS}, mtp or auto"
            self.fail(f"expected {expected}, got {value[:MOST_CHARACTERS]!r}", param, ctx)
        return Speculation("lookup", int(found[1]))


class Finite(click.FloatRange):
    """A number of a range, and neither nan nor inf."""

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, got {value!r}", param, ctx)
        return number


class NumberList(click.ParamType[tuple[int, ...]]):
    """Positive whole numbers, separated by commas: 1,8,64."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        texts = [text.strip() for text in value.split(",") if text.strip()]
        return tuple(POSITIVE.convert(text, param, ctx) for text in texts)


def complete_path(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Let the shell complete a path."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


class Checkpoint(click.ParamType[str]):
    """A checkpoint's folder or a model's name, which the command finds or downloads itself."""

    name = "model"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        return complete_path(ctx, param, incomplete)

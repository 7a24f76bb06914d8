"""What a folder of the comparison holds: decode of each engine and its answers to each load."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.bench.peers.loads import LOADS
from tools.bench.peers.servers import SERVERS, PeerError
from tools.bench.report import Table, counted

Document = Mapping[str, Any]
MODEL_TITLE = "GLM-4.5-Air-FP8"
LOAD_TITLES = (
    "load",
    "engine",
    "first token p50, ms",
    "time per token p50, ms",
    "time per token p99, ms",
    "goodput, requests/s",
)
FLOOD = "flood"
FLOOD_TITLES = ("flood", "tokens/s")


@dataclass(frozen=True)
class Side:
    """One engine: tokens/s by batch size, and the points of each load by its name."""

    title: str
    version: str
    decode: dict[int, float]
    loads: dict[str, list[Document]]


def read(folder: Path) -> dict[str, Side]:
    """The engines of which a folder holds anything, in the order of `SERVERS`."""
    sides = {name: read_side(folder, name) for name in SERVERS}
    found = {name: side for name, side in sides.items() if side.decode or side.loads}
    if not found:
        raise PeerError(f"{folder}: no file such as glm-decode.json or vllm-short.json")
    return found


def read_side(folder: Path, name: str) -> Side:
    """Of several files of decode, e.g. of two kernels of the experts, the faster row counts."""
    decode: dict[int, float] = {}
    version = ""
    for path in [folder / f"{name}-decode.json", *sorted(folder.glob(f"{name}-decode-*.json"))]:
        if not path.exists():
            continue
        document = read_json(path)
        version = version_in(document, name) or version
        for batch, rate in rates(document):
            decode[batch] = max(rate, decode.get(batch, 0.0))
    loads = {
        load: read_json(path)["points"]
        for load in LOADS
        if (path := folder / f"{name}-{load}.json").exists()
    }
    return Side(SERVERS[name].title, version, dict(sorted(decode.items())), loads)


def read_json(path: Path) -> Document:
    try:
        document: Document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PeerError(f"{path}: not JSON: {error}") from error
    return document


def version_in(document: Document, name: str) -> str:
    """The version that a file states: this comparison's, that of `glm bench`, or a peer's own."""
    stated = document.get(name, document.get("version", ""))
    return str(stated["version"] if isinstance(stated, dict) else stated)


def rates(document: Document) -> list[tuple[int, float]]:
    if "decode" in document:
        return [(row["batch"], row["tokens_per_second"]) for row in document["decode"]]
    return [(row["batch"], row["decode_tok_s"]) for row in document["rows"]]


def named(side: Side) -> str:
    return f"{side.title} {side.version}".strip()


def decode_table(sides: dict[str, Side]) -> Table:
    """Tokens/s of each engine at the batch sizes that all have."""
    decoded = [side for side in sides.values() if side.decode]
    batches = sorted(set.intersection(*(set(side.decode) for side in decoded)) if decoded else ())
    rows = [[named(side), *(f"{side.decode[batch]:,.0f}" for batch in batches)] for side in decoded]
    return [counted("decode, tokens/s", "batch {}", batches), *rows]


def load_table(sides: dict[str, Side]) -> Table:
    """One row for each rate of each load and each engine."""
    rows = [
        (f"{load}, {point['rate']:g}/s", side.title, *cells(point))
        for load in LOADS
        for points in zip(*(side.loads[load] for side in having(sides, load)), strict=True)
        for side, point in zip(having(sides, load), points, strict=True)
        if point["rate"] is not None
    ]
    return [LOAD_TITLES, *rows]


def flood_table(sides: dict[str, Side]) -> Table:
    """Output tokens/s of each engine that answered the flood."""
    rows = [
        (named(side), f"{side.loads[FLOOD][0]['output_tokens_per_second']:,.0f}")
        for side in having(sides, FLOOD)
    ]
    return [FLOOD_TITLES, *rows]


def having(sides: dict[str, Side], load: str) -> list[Side]:
    return [side for side in sides.values() if load in side.loads]


def cells(point: Document) -> Sequence[str]:
    times = [point["ttft_ms"]["p50"], point["tpot_ms"]["p50"], point["tpot_ms"]["p99"]]
    digits = (0, 1, 1)
    shown = [f"{time:.{count}f}" for time, count in zip(times, digits, strict=True)]
    return [*shown, f"{point['goodput']['requests_per_second']:.1f}"]

"""What is asked of the whole engine on one H200, beside what was measured."""

from collections.abc import Iterator
from dataclasses import dataclass

from tools.bench.cuda.results import Results
from tools.bench.figures import Bound, Figure
from tools.bench.kernels import wanted
from tools.bench.kernels.case import FP8_PRODUCT, SUSTAINED


@dataclass(frozen=True)
class Share:
    """Percents of the floor at a batch size: asked and aimed at."""

    asked: float
    aim: float


SHARES = {
    1: Share(60, 75),
    8: Share(76, 86),
    16: Share(80, 88),
    64: Share(82, 90),
    128: Share(82, 90),
    256: Share(76, 86),
}
FIRST_CONTEXT = 128
POINTS_LESS = {128: 0, 1024: 4, 8192: 4}
MOST_BATCH = {128: 256, 1024: 128, 8192: 16}
MOST_HOST_PERCENT = 2.0
PREFILL_TOKENS, PREFILL_PERCENT = 8192, 55.0
LOADING_RATE = 10.0


def asked_share(row: dict) -> float | None:
    """Percent of the floor that is asked of a decode point, None where nothing is."""
    batch, context = row["batch"], row["context"]
    if batch not in SHARES or batch > MOST_BATCH.get(context, 0):
        return None
    return SHARES[batch].asked - POINTS_LESS[context]


def decode(results: Results) -> Iterator[Figure]:
    for row in results.decode:
        limit = asked_share(row)
        if limit is None:
            continue
        name = f"decode, batch {row['batch']}, context {row['context']:,}: floor over step"
        note = f"{row['step_ms']:.2f} ms, floor {row['floor_ms']:.2f} ms"
        yield Figure(name, 100 * row["share_of_floor"], "%", Bound.AT_LEAST, limit, note)


def lower(results: Results) -> Iterator[Figure]:
    """How far a longer context is below the shortest at the same batch size."""
    rows = {(row["context"], row["batch"]): 100 * row["share_of_floor"] for row in results.decode}
    for (context, batch), share in rows.items():
        first = rows.get((FIRST_CONTEXT, batch))
        if first is None or context == FIRST_CONTEXT or batch > MOST_BATCH.get(context, 0):
            continue
        name = f"decode, batch {batch}, context {context:,}: lower than at {FIRST_CONTEXT}"
        limit = POINTS_LESS[context]
        yield Figure(name, first - share, "points", Bound.AT_MOST, limit, f"{share:.1f} %")


def hidden_host(results: Results) -> Iterator[Figure]:
    """The worst difference between a step and its device time."""
    apart = [abs(row["step_ms"] / row["device_ms"] - 1) for row in results.decode]
    if apart:
        name = "step time beside device time, the furthest of all points"
        yield Figure(name, 100 * max(apart), "%", Bound.AT_MOST, MOST_HOST_PERCENT)


def prefill(results: Results) -> Iterator[Figure]:
    for row in results.prefill:
        if row["tokens"] != PREFILL_TOKENS or results.kernels is None:
            continue
        exact, held = (results.kernels.ceilings.get(name) for name in (FP8_PRODUCT, SUSTAINED))
        if exact is None:
            continue
        rate = row["teraflops_per_second"]
        note = f"{rate:.0f} of {exact / 1e12:,.0f} TFLOP/s"
        if held is not None:
            note += f"; {1e14 * rate / held:.0f} % of {held / 1e12:,.0f} after a second of load"
        name = f"prefill of {PREFILL_TOKENS:,} tokens beside an FP8 product"
        yield Figure(name, 1e14 * rate / exact, "%", Bound.AT_LEAST, PREFILL_PERCENT, note)


def loading_rate(report: dict) -> float:
    """10⁹ bytes of weights a second."""
    return report["engine"]["weight_bytes"] / report["load_seconds"] / 1e9


def loading(results: Results) -> Iterator[Figure]:
    for name, report in results.loadings.items():
        gigabytes = report["engine"]["weight_bytes"] / 1e9
        note = f"{gigabytes:.1f} GB in {report['load_seconds']:.2f} s, {name}"
        rate = loading_rate(report)
        yield Figure("loading a checkpoint", rate, "GB/s", Bound.AT_LEAST, LOADING_RATE, note)


def kernels(results: Results) -> list[Figure]:
    return [] if results.kernels is None else wanted.figures(results.kernels.lines)


PARTS = (decode, lower, hidden_host, prefill, loading)


def figures(results: Results) -> list[Figure]:
    whole = [figure for part in PARTS for figure in part(results)]
    return [*whole, *kernels(results)]

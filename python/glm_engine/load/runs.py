"""One run: warm-up, then every rate in turn, against a server or an engine in this process."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from glm_engine.core import acceptance
from glm_engine.core.console import count_progress
from glm_engine.core.engine import Engine
from glm_engine.core.interrupts import is_interrupt
from glm_engine.load import in_process
from glm_engine.load.fields import GaugeRow, Point, ServerFigures
from glm_engine.load.figures import make_figures
from glm_engine.load.occupancy import Watch, over_time
from glm_engine.load.processes import run_asks
from glm_engine.load.records import Outcome
from glm_engine.load.server_metrics import MICRO, difference, read_counters, with_acceptance
from glm_engine.load.target import Target
from glm_engine.load.worker import Change, ignore_interrupts
from glm_engine.load.workload import AnyVocabulary, Ask, Workload, make_asks

Ran = tuple[list[Outcome], ServerFigures | None, list[GaugeRow] | None]
Run = Callable[[Sequence[Ask], Change], Ran]


class InFlight:
    """The requests in flight, as progress shows them; `on_end` is called when one ends."""

    def __init__(self) -> None:
        self.count = 0
        self.on_end: Callable[[], object] = lambda: None

    def change(self, change: int) -> None:
        self.count += change
        if change < 0:
            self.on_end()

    def __str__(self) -> str:
        return f"{self.count:,} running"


@dataclass(frozen=True)
class Schedule:
    """The rates of a run and what they share. `limits` are the seconds of goodput by name."""

    workload: Workload
    rates: tuple[float, ...]
    seed: int
    num_warm_up: int
    max_concurrency: int | None
    limits: dict[str, float]
    quiet: bool

    def asks_of(self, vocabulary: AnyVocabulary | None, at: int) -> list[Ask]:
        return make_asks(self.workload, vocabulary, self.seed, at, self.rates[at])

    def warm_up_asks(self, vocabulary: AnyVocabulary | None) -> list[Ask]:
        """Asks that no rate measures, all at once."""
        drawn = make_asks(self.workload, vocabulary, self.seed, len(self.rates), self.rates[0])
        return [replace(ask, due=0.0) for ask in drawn[: self.num_warm_up]]


def run_schedule(schedule: Schedule, vocabulary: AnyVocabulary | None, run: Run) -> list[Point]:
    """Figures of every rate; `run(asks, on_change)` gives outcomes, server figures and gauges.

    The figures of an interrupted rate are the last, or those of the rate before where an
    interruption came between two; with no figures at all it is raised.
    """
    points: list[Point] = []
    try:
        warm_up(schedule, vocabulary, run)
        for at in range(len(schedule.rates)):
            points.append(measure_rate(schedule, vocabulary, run, at))
            if points[-1]["is_interrupted"]:
                break
    except BaseException as error:
        if not points or not is_interrupt(error):
            raise
        ignore_interrupts()
    return points


def warm_up(schedule: Schedule, vocabulary: AnyVocabulary | None, run: Run) -> None:
    asks = schedule.warm_up_asks(vocabulary) if schedule.num_warm_up else []
    outcomes = run(asks, lambda _: None)[0] if asks else []
    if any(outcome.is_interrupted for outcome in outcomes):
        raise KeyboardInterrupt


def measure_rate(schedule: Schedule, vocabulary: AnyVocabulary | None, run: Run, at: int) -> Point:
    rate, asks = schedule.rates[at], schedule.asks_of(vocabulary, at)
    title, flight = f"requests at rate {rate:g}", InFlight()
    with count_progress(len(asks), title, schedule.quiet, flight) as flight.on_end:
        outcomes, server, gauges = run(asks, flight.change)
    figures = make_figures(rate, outcomes, schedule.limits)
    return {**figures, "num_asked": len(asks), "server": server, "gauges": gauges}


def against_server(
    target: Target, schedule: Schedule, timeout: float, num_workers: int, watch: Watch
) -> Run:
    """How asks are run against a server that `watch` looks at."""
    address, limit = target.address, schedule.max_concurrency

    def run(asks: Sequence[Ask], on_change: Change) -> Ran:
        before = read_counters(address)
        outcomes = run_asks(target, asks, limit, timeout, num_workers, on_change)
        gauges = meanwhile(watch.rows, outcomes)
        if any(outcome.is_interrupted for outcome in outcomes):
            return outcomes, None, gauges
        try:
            return outcomes, difference(before, read_counters(address)), gauges
        except KeyboardInterrupt:
            ignore_interrupts()
            outcomes[0].is_interrupted = True
            return outcomes, None, gauges

    return run


def meanwhile(
    rows: Sequence[tuple[float, ...]], outcomes: Sequence[Outcome]
) -> list[GaugeRow] | None:
    """Those rows of gauges that were seen since the first outcome's start."""
    return over_time(list(rows), min(outcome.start for outcome in outcomes), time.monotonic())


def inside_engine(
    engine: Engine,
    tokenizer: in_process.Tokenizer,
    schedule: Schedule,
    temperature: float,
    ignore_eos: bool,
) -> Run:
    """How asks are run in an engine of this process, whose CPU time stands for the server's."""

    def run(asks: Sequence[Ask], on_change: Change) -> Ran:
        requests = [
            (ask.due, in_process.make_request(tokenizer, ask, temperature, ignore_eos))
            for ask in asks
        ]
        feeding = in_process.Feeding(engine, requests, schedule.max_concurrency, on_change)
        before = engine.info()
        outcome = feeding.run()
        figures = cpu_figures(outcome) | acceptance.gained(engine.info(), before)
        return [outcome], with_acceptance(figures), meanwhile(feeding.rows, [outcome])

    return run


def cpu_figures(outcome: Outcome) -> ServerFigures:
    tokens = sum(record.completion_tokens for record in outcome.records)
    cost = outcome.cpu_seconds / tokens / MICRO if tokens else None
    return {
        "cpu_seconds": outcome.cpu_seconds,
        "generated_tokens": tokens,
        "cpu_us_per_token": cost,
    }

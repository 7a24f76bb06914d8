"""One run: warm-up, then every rate in turn, against a server or in an engine of this process."""

import math
from dataclasses import dataclass

from glm_engine.console import count_progress
from glm_engine.load import in_engine
from glm_engine.load.figures import make_figures
from glm_engine.load.server_metrics import MICRO, difference, read_counters
from glm_engine.load.worker import run_asks
from glm_engine.load.workload import make_asks


@dataclass(frozen=True)
class Schedule:
    """What is run. `limits` are the seconds of goodput by name."""

    workload: object
    rates: tuple
    seed: int
    num_warm_up: int
    max_concurrency: int | None
    limits: dict
    quiet: bool

    def asks_of(self, vocabulary, at):
        return make_asks(self.workload, vocabulary, self.seed, at, self.rates[at])

    def warm_up_asks(self, vocabulary):
        """Asks that no rate measures, all at once."""
        drawn = make_asks(self.workload, vocabulary, self.seed, len(self.rates), self.rates[0])
        return [type(ask)(0.0, ask.prompt, ask.max_tokens) for ask in drawn[: self.num_warm_up]]


def run_schedule(schedule, vocabulary, run):
    """Figures of every rate; `run(asks, on_end)` gives outcomes and the server's figures.

    The figures of an interrupted rate are the last.
    """
    warm_up = schedule.warm_up_asks(vocabulary) if schedule.num_warm_up else []
    if warm_up:
        run(warm_up, lambda: None)
    points = []
    for at, rate in enumerate(schedule.rates):
        asks = schedule.asks_of(vocabulary, at)
        title = f"rate {'inf' if math.isinf(rate) else f'{rate:g}/s'}"
        with count_progress(len(asks), title, schedule.quiet) as advance:
            outcomes, server = run(asks, advance)
        figures = make_figures(rate, outcomes, schedule.limits)
        points.append({**figures, "num_asked": len(asks), "server": server})
        if figures["is_interrupted"]:
            break
    return points


def against_server(target, schedule, timeout, num_workers):
    """How asks are run against a server."""
    address, limit = target.address, schedule.max_concurrency

    def run(asks, on_end):
        before = read_counters(address)
        outcomes = run_asks(target, asks, limit, timeout, num_workers, on_end)
        return outcomes, difference(before, read_counters(address))

    return run


def inside_engine(engine, tokenizer, schedule, temperature, ignore_eos):
    """How asks are run in an engine of this process, whose CPU time stands for the server's."""

    def run(asks, on_end):
        requests = [
            (ask.due, in_engine.make_request(tokenizer, ask, temperature, ignore_eos))
            for ask in asks
        ]
        feeding = in_engine.Feeding(engine, requests, schedule.max_concurrency, on_end)
        outcome = feeding.run()
        return [outcome], cpu_figures(outcome)

    return run


def cpu_figures(outcome):
    tokens = sum(record.completion_tokens for record in outcome.records)
    cost = outcome.cpu_seconds / tokens / MICRO if tokens else None
    return {
        "cpu_seconds": outcome.cpu_seconds,
        "generated_tokens": tokens,
        "cpu_us_per_token": cost,
    }

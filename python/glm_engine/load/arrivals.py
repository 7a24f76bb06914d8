"""When requests are due: gaps drawn from a gamma distribution, Poisson arrivals among them."""

import math
from typing import TYPE_CHECKING

from glm_engine.core.errors import BadInputError

if TYPE_CHECKING:
    from numpy.random import Generator

MOST_REQUESTS = 1_000_000
LEAST_RATE, MOST_RATE = 1e-6, 1e9
DRAWN_AT_ONCE = 1024


def parse_rates(text: str, is_timed: bool = False) -> list[float]:
    """Return the rates (requests per second) of a list like `1,2.5,inf`; no inf if timed."""
    rates = [parse_rate(text, field.strip()) for field in text.split(",")]
    if len(set(rates)) < len(rates):
        raise BadInputError(f"--rate {text!r}: each rate may appear only once")
    if is_timed and math.inf in rates:
        raise BadInputError("--rate inf needs --requests: with --seconds, the run would never end")
    return rates


def parse_rate(text: str, field: str) -> float:
    try:
        rate = float(field)
    except ValueError:
        rate = math.nan
    if not rate > 0:
        raise BadInputError(f"--rate {text!r}: expected numbers above 0 or inf, got {field!r}")
    if not LEAST_RATE <= rate <= MOST_RATE and field != "inf":
        known = f"{LEAST_RATE:g} to {MOST_RATE:g}, or inf"
        raise BadInputError(f"--rate {text!r}: expected {known}, got {field!r}")
    return rate


def due_times(
    generator: "Generator",
    rate: float,
    burstiness: float,
    num_requests: int | None = None,
    seconds: float | None = None,
) -> list[float]:
    """Return when requests are due, in seconds after the start.

    There are `num_requests` of them, or as many as fall before `seconds`. Gaps are gamma
    distributed with shape `burstiness` and mean 1 / rate: 1 is a Poisson process, lower is
    burstier, higher is steadier. With a rate of inf all are due at 0.
    """
    many = f"more than {MOST_REQUESTS:,} requests at a rate of {rate:g}/s"
    if num_requests is not None and num_requests > MOST_REQUESTS:
        raise BadInputError(many)
    if num_requests is not None and math.isinf(rate):
        return [0.0] * num_requests
    most = math.inf if num_requests is None else num_requests
    end = math.inf if seconds is None else seconds
    times: list[float] = []
    now = 0.0
    while True:
        for gap in generator.gamma(burstiness, 1 / (rate * burstiness), DRAWN_AT_ONCE).tolist():
            now += gap
            if now >= end or len(times) == most:
                return times
            times.append(now)
            if len(times) > MOST_REQUESTS:
                raise BadInputError(many)

"""When requests are due: gaps drawn from a gamma distribution, Poisson arrivals among them."""

import math

from glm_engine.core.errors import BadInputError

MOST_REQUESTS = 1_000_000
LEAST_RATE, MOST_RATE = 1e-6, 1e9
DRAWN_AT_ONCE = 1024


def parse_rates(text, is_timed=False):
    """Return the rates (requests per second) of a list like `1,2.5,inf`; no inf if timed."""
    rates = [parse_rate(text, field.strip()) for field in text.split(",")]
    if len(set(rates)) < len(rates):
        raise BadInputError(f"--rate {text!r}: each rate may appear only once")
    if is_timed and math.inf in rates:
        raise BadInputError("--rate inf needs --requests: with --seconds, the run would never end")
    return rates


def parse_rate(text, field):
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


def due_times(generator, rate, burstiness, num_requests=None, seconds=None):
    """Return when requests are due, in seconds after the start.

    There are `num_requests` of them, or as many as fall before `seconds`. Gaps are gamma
    distributed with shape `burstiness` and mean 1 / rate: 1 is a Poisson process, lower is
    burstier, higher is steadier. With a rate of inf all are due at 0.
    """
    many = f"more than {MOST_REQUESTS:,} requests at a rate of {rate:g}/s"
    if num_requests is not None and num_requests > MOST_REQUESTS:
        raise BadInputError(many)
    if math.isinf(rate):
        return [0.0] * num_requests
    times, now = [], 0.0
    while True:
        for gap in generator.gamma(burstiness, 1 / (rate * burstiness), DRAWN_AT_ONCE).tolist():
            now += gap
            if now >= seconds if num_requests is None else len(times) == num_requests:
                return times
            times.append(now)
            if len(times) > MOST_REQUESTS:
                raise BadInputError(many)

"""Gauges of batch, KV cache and queue while requests are in flight."""

import threading
import time
from collections.abc import Iterable
from typing import TypeGuard

from glm_engine.core.engine import Engine
from glm_engine.core.errors import GlmError
from glm_engine.load.fields import GaugeRow
from glm_engine.load.http_client import OK, Address
from glm_engine.load.sse import is_count
from glm_engine.load.target import ask_server, object_of
from glm_engine.server.http.metrics import batch_occupancy, kv_utilisation

GAUGES = ("batch_occupancy", "kv_utilisation", "waiting_requests")
LOOK_SECONDS = 0.5


def gauges_of_server(address: Address) -> list[float] | None:
    """The values of GAUGES at /gauges, in their order; None where it does not answer with them."""
    try:
        status, content = ask_server(address, "GET", "/gauges")
    except GlmError:
        return None
    answer = object_of(content) if status == OK else None
    batch, pages, waiting = ((answer or {}).get(name) for name in GAUGES)
    if is_share(batch) and is_share(pages) and is_count(waiting):
        return [batch, pages, waiting]
    return None


def is_share(value: object) -> TypeGuard[float]:
    return type(value) is not bool and isinstance(value, int | float) and 0 <= value <= 1


def gauges_of_engine(engine: Engine) -> list[float]:
    """The same of an engine of this process."""
    info = engine.info()
    return [batch_occupancy(info), kv_utilisation(info), info["waiting_requests"]]


def over_time(rows: Iterable[tuple[float, ...]], start: float, end: float) -> list[GaugeRow] | None:
    """Return the rows of gauges seen from start to end; None without a row.

    Each is a dictionary of GAUGES, and of `seconds`, which count from the start.
    """
    seen: list[GaugeRow] = [
        {
            "seconds": at - start,
            "batch_occupancy": batch,
            "kv_utilisation": pages,
            "waiting_requests": waiting,
        }
        for at, batch, pages, waiting in rows
        if start <= at <= end
    ]
    return seen or None


class Watch:
    """Looks at a server's gauges in a thread until the block ends; once where it has none."""

    def __init__(self, address: Address) -> None:
        self.address, self.is_over = address, threading.Event()
        self.rows: list[tuple[float, ...]] = []
        self.thread = threading.Thread(target=self.run, name="glm-load-gauges", daemon=True)

    def __enter__(self) -> "Watch":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()

    def run(self) -> None:
        while not self.is_over.is_set():
            if values := gauges_of_server(self.address):
                self.rows.append((time.monotonic(), *values))
            elif not self.rows:
                return
            self.is_over.wait(LOOK_SECONDS)

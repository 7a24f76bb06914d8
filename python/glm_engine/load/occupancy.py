"""Gauges of batch, KV cache and queue while requests are in flight."""

import threading
import time

from glm_engine.core.errors import GlmError
from glm_engine.load.http_client import OK
from glm_engine.load.sse import is_count
from glm_engine.load.target import ask_server, object_of
from glm_engine.server.http.metrics import batch_occupancy, kv_utilisation

GAUGES = ("batch_occupancy", "kv_utilisation", "waiting_requests")
LOOK_SECONDS = 0.5


def gauges_of_server(address):
    """The values of GAUGES at /gauges, in their order; None where it does not answer with them."""
    try:
        status, content = ask_server(address, "GET", "/gauges")
    except GlmError:
        return None
    answer = object_of(content) if status == OK else None
    *shares, waiting = [(answer or {}).get(name) for name in GAUGES]
    return [*shares, waiting] if all(map(is_share, shares)) and is_count(waiting) else None


def is_share(value):
    return type(value) in (int, float) and 0 <= value <= 1


def gauges_of_engine(engine):
    """The same of an engine of this process."""
    info = engine.info()
    return [batch_occupancy(info), kv_utilisation(info), info["waiting_requests"]]


def over_time(rows, start, end):
    """Return the rows of gauges seen from start to end; None without a row.

    Each is a dictionary of GAUGES, and of `seconds`, which count from the start.
    """
    seen = [(at - start, *values) for at, *values in rows if start <= at <= end]
    return [dict(zip(("seconds", *GAUGES), row, strict=True)) for row in seen] or None


class Watch:
    """Looks at a server's gauges in a thread until the block ends; once where it has none."""

    def __init__(self, address):
        self.address, self.rows, self.is_over = address, [], threading.Event()
        self.thread = threading.Thread(target=self.run, name="glm-load-gauges", daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()

    def run(self):
        while not self.is_over.is_set():
            if values := gauges_of_server(self.address):
                self.rows.append((time.monotonic(), *values))
            elif not self.rows:
                return
            self.is_over.wait(LOOK_SECONDS)

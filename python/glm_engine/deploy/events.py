"""Structured logs of a deployment: one JSON object a line, on standard error."""

import json
import sys
from datetime import UTC, datetime


def log_event(event, **fields):
    """Log an event with its fields, in the form of the server's logs."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {**fields, "event": event, "level": "info", "timestamp": now}
    print(json.dumps(line, ensure_ascii=False), file=sys.stderr, flush=True)

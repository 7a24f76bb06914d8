"""What the reports of `glm bench` and `glm load` begin with."""

import os
import platform
import sys
from datetime import UTC, datetime
from typing import TypedDict

from glm_engine.version import version


class ReportHead(TypedDict):
    """How, when and by what a report was made."""

    command: str
    date: str
    version: str
    python: str
    cores: int | None


def report_head() -> ReportHead:
    return {
        "command": " ".join(["glm", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }

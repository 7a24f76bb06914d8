"""`glm deploy --local`: runs the stages one after the other on this machine."""

import signal
from collections.abc import Iterable
from typing import Any

from glm_engine.deploy.job import Job
from glm_engine.deploy.program import StageFailedError
from glm_engine.deploy.stages import Stage
from glm_engine.deploy.warm import WarmServer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_here(stages: Iterable[Stage], job: Job) -> dict[str, Any]:
    """Run the stages one after the other and return their reports by name."""
    return {stage.name: stage.body(job) for stage in stages}


def serve_here(stages: Iterable[Stage], job: Job) -> int:
    """Serve until a signal comes, finish the running requests and return the exit code."""
    run_here(stages, job)
    server = WarmServer(job)
    for number in SIGNALS:
        signal.signal(number, lambda *_: server.drain())
    server.start()
    try:
        server.check_health()
    except StageFailedError:
        server.drain()
        raise
    return server.wait()

"""`glm deploy --local`: runs the stages one after the other on this machine."""

import signal

from glm_engine.deploy.program import StageFailedError
from glm_engine.deploy.warm import WarmServer

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_here(stages, job):
    """Run the stages one after the other and return their reports by name."""
    return {stage.name: stage.body(job) for stage in stages}


def serve_here(stages, job):
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

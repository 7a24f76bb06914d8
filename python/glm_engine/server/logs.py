"""Structured logs: one JSON object a line, on standard error."""

import contextlib
import logging
import os
import sys

import orjson
import structlog

QUIET_ENDPOINTS = ("/health", "/healthz", "/readyz", "/metrics", "/gauges", "/")
log = structlog.get_logger("server")


class ErrorOutput:
    """Standard error as a file without a buffer; what nobody can take is dropped silently."""

    def write(self, data):
        rest = memoryview(data)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(sys.__stderr__.fileno(), rest) :]

    def flush(self):
        """Do nothing: nothing is held back."""


error_output = ErrorOutput()


def configure(level):
    """Send this package's and uvicorn's logs through one renderer."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.BytesLoggerFactory(error_output),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers = [StructuredHandler()]
    root.setLevel(max(number, logging.WARNING))


class StructuredHandler(logging.Handler):
    """Hands records of the standard library's logging to structlog."""

    def emit(self, record):
        log.log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def log_visit(visit):
    """Log a request that has ended; probes of monitoring only when they are watched for."""
    write = log.debug if visit.endpoint in QUIET_ENDPOINTS else log.info
    write("request", **visit.as_fields())

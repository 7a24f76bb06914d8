"""From a bound socket to an exit code: start, signals, drain."""

import asyncio
import contextlib
import errno
import gc
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from starlette.types import ASGIApp

from glm_engine.core.errors import BadInputError, ExitCode
from glm_engine.server.http.admission import is_loopback
from glm_engine.server.http.health import log_throughput, serving_fields
from glm_engine.server.http.logs import error_output, is_text
from glm_engine.server.http.middleware import refusal
from glm_engine.server.http.protocol import bounded
from glm_engine.server.http.streaming import look_after_streams

if TYPE_CHECKING:
    from glm_engine.server.app import Service
    from glm_engine.server.server_settings import Settings


log = structlog.get_logger("server")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAST_WRITES_SECONDS = 2
MILLISECONDS = 1000
COLLECTION_THRESHOLDS = (20_000, 20, 20)
BACKLOG = 2048
LOOK_SECONDS = 0.5
LOST_SECONDS = 5


def bind(settings: "Settings") -> socket.socket:
    """Return a listening socket; a port in use is one clear line.

    Who has bound a port and does not listen yet shares it with others that do the same.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    patience = int(settings.stalled_write_seconds * MILLISECONDS)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            reason = f"{reason}; choose another port with --port"
        raise BadInputError(
            f"cannot listen on {settings.host}:{settings.port}: {reason}"
        ) from error
    return listener


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """uvicorn whose signals drain: the first waits for what runs, the second ends at once."""

    def __init__(self, app: ASGIApp, service: "Service", listener: socket.socket) -> None:
        settings = service.settings
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=bounded(settings, partial(refusal, service)),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=settings.idle_seconds,
                timeout_graceful_shutdown=LAST_WRITES_SECONDS,
            )
        )
        self.service = service
        self.listener = listener
        self.draining: asyncio.Task[None] | None = None
        self.exit_code = ExitCode.OK

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.bridge.open()
        care = look_after_streams(self.service)
        watch, reports = self.look_after_engine(), log_throughput(self.service)
        self.tasks = [asyncio.create_task(one) for one in (care, watch, reports)]
        await super().startup(sockets)
        error_output.write(self.greeting().encode())
        self.say_what_is_served()

    def greeting(self) -> str:
        """Return what is said once all is ready, at any log level."""
        address = address_of(self.listener)
        line = f"glm: serving {self.service.model_name} on {address}\n"
        if self.service.keys.digests or is_loopback(self.listener.getsockname()[0]):
            return line
        return f"{line}glm: warning: anyone who can reach {address} can use it: no API key is set\n"

    def say_what_is_served(self) -> None:
        fields = serving_fields(self.service, address_of(self.listener))
        if not is_text(self.service.settings.log_format):
            log.info("serving", **fields)
            return
        from glm_engine.server.http.logs import start_block

        error_output.write(start_block(fields).encode())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.service.end_processes()
        await super().shutdown(sockets)
        for task in self.tasks:
            task.cancel()
        self.service.close()

    async def look_after_engine(self) -> None:
        """End with an engine that is lost, once clients and probes have had time to see it."""
        while self.service.is_usable():
            await asyncio.sleep(LOOK_SECONDS)
        error_output.write(
            f"glm: the engine has failed; the server exits in {LOST_SECONDS} s\n".encode()
        )
        await asyncio.sleep(LOST_SECONDS)
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain at these signals; SIGHUP stays ignored where it was from the start (nohup)."""
        loop = asyncio.get_running_loop()
        is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        numbers = [number for number in SIGNALS if not (is_kept and number is signal.SIGHUP)]
        for number in numbers:
            loop.add_signal_handler(number, self.take_signal, number)
        yield
        for number in numbers:
            loop.remove_signal_handler(number)

    def take_signal(self, number: int) -> None:
        """Drain; a second signal ends at once, but for SIGHUP: shell and terminal both send it."""
        if self.draining is None:
            self.draining = asyncio.get_running_loop().create_task(self.drain(number))
        elif number != signal.SIGHUP:
            try:
                log.warning(
                    "received a second signal; exiting immediately",
                    signal=signal.Signals(number).name,
                )
                self.service.end_processes()
                error_output.settle()
            finally:
                os._exit(ExitCode.INTERRUPTED)

    async def drain(self, number: int) -> None:
        """Finish what runs within the time for it, cut the rest off, then stop, whatever fails.

        What is left of the time in the end is for readers to take what was written.
        """
        until = time.monotonic() + self.service.settings.drain_seconds
        try:
            await self.finish_requests(number)
        finally:
            left = until - time.monotonic()
            config: Any = self.config
            config.timeout_graceful_shutdown = max(LAST_WRITES_SECONDS, left)
            self.should_exit = True

    async def finish_requests(self, number: int) -> None:
        """Wait for what runs, then cut the rest off.

        Half of the time is for clients to send what they began to send.
        """
        service, seconds = self.service, self.service.settings.drain_seconds
        log.info(
            "draining",
            signal=signal.Signals(number).name,
            running=service.admission.num_inside,
            seconds=seconds,
        )
        if not await service.admission.drain(seconds / 2):
            service.admission.refuse_half_sent()
            if not await service.admission.drain(seconds / 2):
                self.exit_code = ExitCode.FAILED
                log.warning("cut off", requests=service.admission.num_inside)
                service.cut_off(service.admission.draining_error())


def raise_file_limit() -> None:
    """Let the process have as many connections as the system allows it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve(app: ASGIApp, service: "Service", listener: socket.socket) -> ExitCode:
    """Serve until a signal ends it; returns the exit code."""
    raise_file_limit()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    server = Server(app, service, listener)
    with error_output.unblocked():
        server.run(sockets=[listener])
        if service.tracing:
            service.tracing.close()
        code = server.exit_code if service.is_usable() else ExitCode.ENGINE
        log.info("stopped", exit_code=int(code))
    return code

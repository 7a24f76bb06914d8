"""The asyncio side of the engine: one reader of its event descriptor, one dispatch a wake."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from glm_engine.core import abi
from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.core.requests import finish_reason
from glm_engine.server.choices import Ending
from glm_engine.server.guides import NewTokens

if TYPE_CHECKING:
    from glm_engine.core.engine import Engine
    from glm_engine.server.choices import Choice, LogprobRows
    from glm_engine.server.guides import Guides


log = structlog.get_logger("server")
COLUMNS = (
    "request_id",
    "kind",
    "token_id",
    "finish_reason",
    "status",
    "cached_tokens",
    "num_logprobs",
    "started_ns",
    "num_predicted_tokens",
    "num_draft_tokens",
    "num_accepted_tokens",
)
ENDINGS = (abi.EVENT_FINISHED, abi.EVENT_FAILED)


class Inbox:
    """Choices that have news, for the one task that reads them."""

    def __init__(self) -> None:
        self.ready: dict[Choice, bool] = {}
        self.waiter: asyncio.Future[None] | None = None
        self.is_woken = False

    def add(self, choice: "Choice") -> None:
        self.ready[choice] = True

    def wake(self) -> None:
        """Let the task go on, or not wait the next time where it is busy now."""
        self.is_woken = True
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    async def take(self) -> "dict[Choice, bool]":
        """Return the choices with news; none when it was only woken."""
        if not (self.ready or self.is_woken):
            self.waiter = waiter = asyncio.get_running_loop().create_future()
            await waiter
        self.is_woken = False
        taken, self.ready = self.ready, {}
        return taken


@dataclass(eq=False)
class EngineBridge:
    """Submits choices and hands them the events of the engine.

    All calls are made on the event loop's thread.
    """

    engine: "Engine"
    guides: "Guides"
    routes: "dict[int, tuple[Choice, Inbox]]" = field(default_factory=dict)
    loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        self.loop = loop = asyncio.get_running_loop()
        loop.add_reader(self.engine.event_fd(), self.deliver)

    def close(self) -> None:
        assert self.loop
        self.loop.remove_reader(self.engine.event_fd())

    def submit(self, choice: "Choice", inbox: Inbox) -> None:
        """Queue the request of a choice; EngineError when the engine refuses it."""
        choice.request_id = self.engine.submit(choice.request)
        self.routes[choice.request_id] = (choice, inbox)

    def cancel(self, choice: "Choice") -> bool:
        """Take a choice off the engine, and say if it was there; its later events are nobody's."""
        was_there = self.routes.pop(choice.request_id, None) is not None
        if was_there:
            try:
                self.engine.cancel_quietly(choice.request_id)
            except EngineError as error:
                log.error("the engine failed to cancel a request", exc_info=error)
        return was_there

    def deliver(self) -> None:
        """Take all events in one go and wake each inbox once; a fault ends its choice alone."""
        records = self.engine.poll_records()
        touched: dict[Inbox, bool] = {}
        guided: dict[Choice, NewTokens] = {}
        rows = zip(*[records[name].tolist() for name in COLUMNS], strict=True)
        for at, (request_id, kind, *values) in enumerate(rows):
            route = self.routes.get(request_id)
            if route is None:
                continue
            choice, inbox = route
            try:
                take_event(choice, kind, values, records, at)
            except Exception as error:
                self.refuse(choice, error, "handling an engine event")
                continue
            if choice.guide is not None and kind == abi.EVENT_TOKEN:
                guided.setdefault(choice, NewTokens()).add(values[:1], drafts_of(records[at]))
            if kind in ENDINGS:
                del self.routes[request_id]
            inbox.ready[choice] = True
            touched[inbox] = True
        for inbox in touched:
            inbox.wake()
        going_on = {
            one: new_tokens for one, new_tokens in guided.items() if one.request_id in self.routes
        }
        if going_on:
            self.guide(going_on)

    def guide(self, new_tokens: "dict[Choice, NewTokens]") -> None:
        choices = list(new_tokens)
        try:
            self.guides.advance(new_tokens, self.refuse)
        except Exception as error:
            for choice in choices:
                self.refuse(choice, error)

    def refuse(
        self,
        choice: "Choice",
        error: Exception,
        failed: str = "computing the mask for the next token",
    ) -> None:
        """End a choice that cannot go on, such as one that its grammar cannot guide."""
        route = self.routes.get(choice.request_id)
        if route is not None:
            choice.ending = ending_of(error, failed)
            route[1].add(choice)
            route[1].wake()
            self.cancel(choice)


def ending_of(error: Exception, failed: str) -> Ending:
    """Return how a choice ends where `failed` did not come about; see `Choice.ending`."""
    if isinstance(error, BadInputError):
        return "refused", Status.GLM_OK, str(error)
    if isinstance(error, EngineError):
        return "failed", error.status, str(error)
    log.error(f"{failed} failed", exc_info=error)
    return "failed", Status.GLM_INTERNAL_ERROR, f"{failed} failed"


def take_event(choice: "Choice", kind: int, values: Sequence[int], records: Any, at: int) -> None:
    token_id, reason, status, choice.cached_tokens, num_logprobs, *rest = values
    choice.started_ns, choice.num_predicted_tokens = rest[:2]
    choice.num_draft_tokens, choice.num_accepted_tokens = rest[2:]
    if kind == abi.EVENT_PROMPT_TOKEN:
        take_logprobs(choice.prompt_rows, token_id, records[at], num_logprobs)
        return
    if kind == abi.EVENT_TOKEN:
        choice.arrived.append(token_id)
        if num_logprobs >= 0:
            take_logprobs(choice.logprobs, token_id, records[at], num_logprobs)
        return
    message = records["message"][at].decode("utf-8", "replace")
    name = "failed" if kind == abi.EVENT_FAILED else finish_reason(reason)
    choice.ending = (name, status, message)


def drafts_of(record: Any) -> list[int]:
    """Return the tokens that the engine expects behind that of an event."""
    drafts: list[int] = record["drafts"][: record["num_drafts"]].tolist()
    return drafts


def take_logprobs(rows: "LogprobRows", token_id: int, record: Any, count: int) -> None:
    best_ids, best = (record[name][:count].tolist() for name in ("top_ids", "top_logprobs"))
    rows.append(token_id, float(record["logprob"]), best_ids, best)

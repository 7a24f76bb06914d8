"""Who is let in: nobody while draining, no more than engine and queue can hold."""

import asyncio

from glm_engine.server.errors import ApiError

ALWAYS_OPEN = ("/health", "/readyz", "/metrics", "/gauges", "/page/", "/openapi.json")


class Gate:
    """Knows the requests inside, and closes.

    `inside` holds each one's visit and receive by the task that answers it.
    """

    def __init__(self, most_inside, settings):
        self.most_inside = most_inside
        self.settings = settings
        self.inside = {}
        self.is_draining = False
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    @property
    def num_inside(self):
        return len(self.inside)

    def is_guarded(self, path):
        return path != "/" and not path.startswith(ALWAYS_OPEN)

    def check(self):
        """Refuse with 503 while draining, with 429 where too many are inside."""
        if self.is_draining:
            raise self.draining_error()
        retry = {"retry-after": str(self.settings.retry_after_seconds)}
        if self.num_inside > self.most_inside:
            message = f"the server is full: {self.num_inside} requests are inside"
            raise ApiError(429, message, code="server_full", headers=retry)

    def draining_error(self):
        retry = str(self.settings.retry_after_seconds)
        headers = {"retry-after": retry, "connection": "close"}
        return ApiError(503, "the server is shutting down", code="draining", headers=headers)

    def enter(self, visit, receive):
        self.inside[asyncio.current_task()] = (visit, receive)
        self.is_empty.clear()

    def leave(self):
        del self.inside[asyncio.current_task()]
        if not self.inside:
            self.is_empty.set()

    def refuse_half_sent(self):
        """Cancel the requests whose body is still on its way; their answer is 503."""
        self.cancel(lambda _visit, receive: not receive.is_whole)

    def refuse_unanswered(self):
        """Cancel the requests whose answer has not begun; it is 503."""
        self.cancel(lambda visit, _receive: not visit.status)

    def cancel(self, is_chosen):
        for task, request in self.inside.items():
            if is_chosen(*request):
                task.cancel()

    def patience_seconds(self):
        """Return for how long a reader may stall: a drain lets it hold half of its time."""
        usual = self.settings.stalled_write_seconds
        return min(usual, self.settings.drain_seconds / 2) if self.is_draining else usual

    async def drain(self, seconds):
        """Let nobody in and wait for those inside; False when the time was over first."""
        self.is_draining = True
        if not self.num_inside:
            return True
        try:
            await asyncio.wait_for(self.is_empty.wait(), seconds)
        except TimeoutError:
            return False
        return True

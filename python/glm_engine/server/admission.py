"""Who is let in: nobody while draining, no more than engine and queue can hold."""

import asyncio

from glm_engine.server.errors import ApiError

ALWAYS_OPEN = ("/health", "/readyz", "/metrics", "/gauges", "/page/", "/openapi.json", "/docs")


class Gate:
    """Counts the requests inside, and closes."""

    def __init__(self, most_inside, settings):
        self.most_inside = most_inside
        self.settings = settings
        self.num_inside = 0
        self.is_draining = False
        self.is_empty = asyncio.Event()
        self.is_empty.set()

    def is_guarded(self, path):
        return path != "/" and not path.startswith(ALWAYS_OPEN)

    def check(self):
        """Refuse with 503 while draining, with 429 where too many are inside."""
        retry = {"retry-after": str(self.settings.retry_after_seconds)}
        if self.is_draining:
            headers = {**retry, "connection": "close"}
            raise ApiError(503, "the server is shutting down", code="draining", headers=headers)
        if self.num_inside > self.most_inside:
            message = f"the server is full: {self.num_inside} requests are inside"
            raise ApiError(429, message, code="server_full", headers=retry)

    def enter(self):
        self.num_inside += 1
        self.is_empty.clear()

    def leave(self):
        self.num_inside -= 1
        if self.num_inside == 0:
            self.is_empty.set()

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

"""A line of grammars that are compiled one after the other."""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from glm_engine.server.errors import RETRY, ApiError


class Compilation:
    """A grammar on its way, and how many requests wait for it."""

    def __init__(self, future):
        self.future = future
        self.num_waiting = 0


class Proved(OrderedDict):
    """What is known of grammars that compile, the longest unused of too many forgotten."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)


class Lane:
    """One thread. `coming` holds the grammars that it compiles or that wait for it, by their keys.

    `proved` holds their bytes, `relaxed` what could be enforced of those that are not strict too.

    One whose turn does not come in time, or that nobody waits for any more, is taken out.
    """

    def __init__(self, settings, gate, name):
        self.settings = settings
        self.gate = gate
        self.pool = ThreadPoolExecutor(1, name)
        self.coming = {}
        self.proved = Proved(settings.max_grammars_known)
        self.relaxed = Proved(settings.max_grammars_relaxed)

    async def shared(self, key, make, param):
        """Return what `make` makes of a key, with all others who wait for it.

        Where it fails, the traceback must not hold the compilation that holds the error.
        """
        compilation = self.coming.get(key) or self.begun(key, make)
        compilation.num_waiting += 1
        try:
            if not compilation.future.done():
                await self.gate.wait(compilation.future)
            if compilation.future.cancelled():
                raise self.full_error(param)
            return compilation.future.result()
        finally:
            compilation.num_waiting -= 1
            if not compilation.num_waiting and compilation.future.cancel():
                self.coming.pop(key, None)
            del compilation

    def full_error(self, param):
        waited = self.settings.grammar_wait_seconds
        message = (
            f"the grammar waited more than {waited:g} s for other grammars to compile; retry later"
        )
        return ApiError(429, message, param, "grammars_full", RETRY)

    def begun(self, key, make):
        """Return a compilation that is given up where its turn has not come in time."""
        turn = self.pool.submit(make)
        found = self.coming[key] = Compilation(asyncio.wrap_future(turn))
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(self.settings.grammar_wait_seconds, turn.cancel)
        found.future.add_done_callback(lambda _: self.has_ended(key, found, giving_up))
        return found

    def has_ended(self, key, compilation, giving_up):
        giving_up.cancel()
        if self.coming.get(key) is compilation:
            del self.coming[key]

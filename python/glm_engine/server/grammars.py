"""Grammars that requests ask for: each is compiled once, off the event loop, and kept."""

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from glm_engine.errors import BadInputError
from glm_engine.grammar import CallSpelling, GrammarCompiler
from glm_engine.server.errors import ApiError

NUM_DRAFTING = 2
RETRY = {"retry-after": "5"}


class Compilation:
    """A grammar on its way, or compiled, and how many requests wait for it."""

    def __init__(self, future):
        self.future = future
        self.num_waiting = 0


class Grammars:
    """Compiles one grammar at a time. All methods are called on the event loop's thread.

    `known` holds a compilation for each text of a grammar, the longest unused first; one that
    fails, or that nobody waits for any more, is taken out.
    """

    def __init__(self, settings, gate, make_compiler):
        self.settings = settings
        self.gate = gate
        self.drafting = ThreadPoolExecutor(NUM_DRAFTING, "glm-drafts")
        self.compiling = ThreadPoolExecutor(1, "glm-grammars")
        self.compiler = self.compiling.submit(make_compiler)
        self.known = OrderedDict()

    def close(self):
        self.drafting.shutdown(cancel_futures=True)
        if self.compiler.exception() is None:
            self.compiler.result().close()
        self.compiling.shutdown(cancel_futures=True)

    async def compiled(self, param, method, *arguments, **options):
        """Return the grammar that a method of the compiler drafts; ApiError names `param`."""
        try:
            compiler = await asyncio.wrap_future(self.compiler)
            draw = partial(getattr(compiler, method), *arguments, **options)
            draft = await asyncio.get_running_loop().run_in_executor(self.drafting, draw)
            return await self.shared(draft.text, partial(compiler.compile, draft), param)
        except BadInputError as error:
            raise ApiError(400, str(error), param, "invalid_grammar") from error

    async def shared(self, text, make, param):
        """Return the grammar of a text, with all others who wait for it.

        Where it fails, the traceback must not hold the compilation that holds the error.
        """
        compilation = self.known.get(text) or self.begun(text, make, param)
        self.known.move_to_end(text)
        compilation.num_waiting += 1
        try:
            if not compilation.future.done():
                await self.gate.wait(compilation.future)
            return compilation.future.result()
        finally:
            compilation.num_waiting -= 1
            if not compilation.num_waiting and compilation.future.cancel():
                self.has_ended(text, compilation)
            del compilation

    def begun(self, text, make, param):
        most = self.settings.max_grammars_waiting
        if sum(not one.future.done() for one in self.known.values()) >= most:
            message = f"{most} grammars are being compiled"
            raise ApiError(429, message, param, "grammars_full", RETRY)
        future = asyncio.get_running_loop().run_in_executor(self.compiling, make)
        found = self.known[text] = Compilation(future)
        future.add_done_callback(lambda _: self.has_ended(text, found))
        while len(self.known) > self.settings.max_grammars_kept:
            self.known.popitem(last=False)
        return found

    def has_ended(self, text, compilation):
        """Keep neither a failure nor what nobody waited for."""
        has_failed = compilation.future.cancelled() or compilation.future.exception()
        if has_failed and self.known.get(text) is compilation:
            del self.known[text]


def make_compiler(tokenizer, vocab_size, model):
    return GrammarCompiler(tokenizer, vocab_size, model.ending_ids, spelling_of(model.template))


def spelling_of(template):
    """Return how the template spells tool calls; None where there is none or it spells none."""
    if template is None:
        return None
    try:
        return CallSpelling.of_template(template)
    except BadInputError:
        return None

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
    fails, whose turn does not come in time, or that nobody waits for any more, is taken out.
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
        compilation = self.known.get(text) or self.begun(text, make)
        self.known.move_to_end(text)
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
                self.known.pop(text, None)
            del compilation

    def full_error(self, param):
        waited = self.settings.grammar_wait_seconds
        message = f"grammars that came before took more than {waited:g} s to compile"
        return ApiError(429, message, param, "grammars_full", RETRY)

    def begun(self, text, make):
        """Return a compilation that is given up where its turn has not come in time."""
        turn = self.compiling.submit(make)
        found = self.known[text] = Compilation(asyncio.wrap_future(turn))
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(self.settings.grammar_wait_seconds, turn.cancel)
        found.future.add_done_callback(lambda _: self.has_ended(text, found, giving_up))
        return found

    def has_ended(self, text, compilation, giving_up):
        """Keep no failure, nothing that nobody waited for, and of the others not too many."""
        giving_up.cancel()
        has_failed = compilation.future.cancelled() or compilation.future.exception()
        if has_failed and self.known.get(text) is compilation:
            del self.known[text]
        made = [text for text, one in self.known.items() if one.future.done()]
        for text in made[: max(0, len(made) - self.settings.max_grammars_kept)]:
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

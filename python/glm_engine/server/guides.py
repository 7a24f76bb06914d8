"""Answers that follow a grammar: compiled, and masked token by token, off the event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy

from glm_engine.errors import BadInputError, EngineError, Status
from glm_engine.grammar import CallSpelling, GrammarCompiler
from glm_engine.grammar.proof import BusyProofError
from glm_engine.server.errors import ApiError

NUM_THREADS = 2
RETRY = {"retry-after": "5"}


class Guide:
    """The way of one choice through its grammar."""

    def __init__(self, matcher):
        self.matcher = matcher
        self.num_tokens = 0

    def first_mask(self):
        """Return the mask of the first token, which must be one even where all are allowed."""
        mask = self.matcher.mask()
        if mask is None:
            num_words = self.matcher.vocabulary.num_words
            return numpy.full(num_words, 0xFFFFFFFF, dtype=numpy.uint32)
        return mask

    def advance(self, engine, request_id, token_id):
        """Take a token and give the engine the mask of the next."""
        self.num_tokens += 1
        self.matcher.accept(token_id)
        mask = self.matcher.mask()
        try:
            engine.set_mask(request_id, self.num_tokens, mask)
        except EngineError as error:
            if error.status != Status.GLM_NOT_FOUND:
                raise


class Guides:
    """The compiler of grammars, which is made in the background, and the threads of the masks."""

    def __init__(self, engine, tokenizer, vocab_size, model):
        self.engine = engine
        self.pool = ThreadPoolExecutor(NUM_THREADS, "glm-masks")
        self.compiler = self.pool.submit(make_compiler, tokenizer, vocab_size, model)

    def close(self):
        self.pool.shutdown(cancel_futures=True)
        if not self.compiler.cancelled() and self.compiler.exception() is None:
            self.compiler.result().close()

    async def compiled(self, param, method, *arguments, **options):
        """Return the grammar that a method of the compiler makes; ApiError names `param`."""
        try:
            compiler = await asyncio.wrap_future(self.compiler)
            make = partial(getattr(compiler, method), *arguments, **options)
            return await asyncio.get_running_loop().run_in_executor(compiler.pool, make)
        except BadInputError as error:
            raise ApiError(400, str(error), param, "invalid_grammar") from error
        except BusyProofError as error:
            raise ApiError(429, str(error), param, "grammars_full", RETRY) from error

    def advance(self, choice, token_id, refuse):
        """Have the mask after a token computed; refuse(choice, error) is called on the loop."""
        loop = asyncio.get_running_loop()
        done = self.pool.submit(choice.guide.advance, self.engine, choice.request_id, token_id)
        done.add_done_callback(partial(report, loop, choice, refuse))


def report(loop, choice, refuse, done):
    error = None if done.cancelled() else done.exception()
    if error is not None:
        loop.call_soon_threadsafe(refuse, choice, error)


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


def guide_choices(choices, grammar, after=None):
    """Let choices follow a grammar, from the token `after` on where one is given."""
    first_mask = None
    for choice in choices:
        choice.guide = Guide(grammar.start(after))
        if first_mask is None:
            first_mask = choice.guide.first_mask()
        choice.request = replace(choice.request, mask=first_mask)

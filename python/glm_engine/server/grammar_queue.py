"""A line of grammars that are compiled one after the other."""

import asyncio
import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.server.http.api_errors import RETRY, ApiError, of_no_answer
from glm_engine.text.grammar import CostlyGrammarError, Draft, GrammarCompiler
from glm_engine.text.grammar.spelling import spelling_of

if TYPE_CHECKING:
    from glm_engine.server.http.admission import AdmissionControl
    from glm_engine.server.server_settings import Settings
    from glm_engine.text.grammar import Grammar
    from glm_engine.text.template import ChatTemplate
    from glm_engine.text.tokenizer import GlmTokenizer


Value = TypeVar("Value")
NUM_DRAFTING = 2
MEBIBYTE = 1 << 20


@dataclass(eq=False)
class Compilation:
    """A grammar on its way, and how many requests wait for it."""

    future: "asyncio.Future[Grammar]"
    num_waiting: int = 0


class LruCache(OrderedDict[bytes, Value]):
    """What is known of grammars that compile, the longest unused of too many forgotten."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: bytes, value: Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)


class CompileQueue:
    """One thread. `coming` holds the grammars that it compiles or that wait for it, by their keys.

    `proved` holds their bytes, `relaxed` what could be enforced of those that are not strict too.

    One whose turn does not come in time, or that nobody waits for any more, is taken out.
    """

    def __init__(self, settings: "Settings", admission: "AdmissionControl", name: str) -> None:
        self.settings = settings
        self.admission = admission
        self.pool = ThreadPoolExecutor(1, name)
        self.coming: dict[bytes, Compilation] = {}
        self.proved: LruCache[int] = LruCache(settings.max_grammars_known)
        self.relaxed: LruCache[tuple[Draft, int]] = LruCache(settings.max_grammars_relaxed)

    async def shared(self, key: bytes, make: "Callable[[], Grammar]", param: str) -> "Grammar":
        """Return what `make` makes of a key, with all others who wait for it.

        Where it fails, the traceback must not hold the compilation that holds the error.
        """
        compilation = self.coming.get(key) or self.begun(key, make)
        compilation.num_waiting += 1
        try:
            if not compilation.future.done():
                await self.admission.wait(compilation.future)
            if compilation.future.cancelled():
                raise self.full_error(param)
            return compilation.future.result()
        finally:
            compilation.num_waiting -= 1
            if not compilation.num_waiting and compilation.future.cancel():
                self.coming.pop(key, None)
            del compilation

    def full_error(self, param: str) -> ApiError:
        waited = self.settings.grammar_wait_seconds
        message = (
            f"the grammar waited more than {waited:g} s for other grammars to compile; retry later"
        )
        return ApiError(429, message, param, "grammars_full", RETRY)

    def begun(self, key: bytes, make: "Callable[[], Grammar]") -> Compilation:
        """Return a compilation that is given up where its turn has not come in time."""
        turn = self.pool.submit(make)
        found = self.coming[key] = Compilation(asyncio.wrap_future(turn))
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(self.settings.grammar_wait_seconds, turn.cancel)
        found.future.add_done_callback(lambda _: self.has_ended(key, found, giving_up))
        return found

    def has_ended(
        self, key: bytes, compilation: Compilation, giving_up: asyncio.TimerHandle
    ) -> None:
        giving_up.cancel()
        if self.coming.get(key) is compilation:
            del self.coming[key]


class Grammars:
    """Compiles grammars in two queues. Its coroutines run on the event loop's thread.

    `quick` is for all; what takes longer there goes on to `thorough`, and those behind it do not
    wait. `used` holds the grammars that requests still have, `held_bytes` what they take.
    """

    def __init__(
        self,
        settings: "Settings",
        admission: "AdmissionControl",
        make_compiler: Callable[[], GrammarCompiler],
    ) -> None:
        self.settings = settings
        self.drafting = ThreadPoolExecutor(NUM_DRAFTING, "glm-drafts")
        self.quick = CompileQueue(settings, admission, "glm-grammars")
        self.thorough = CompileQueue(settings, admission, "glm-costly-grammars")
        self.compiler = self.quick.pool.submit(make_compiler)
        self.used: weakref.WeakValueDictionary[bytes, Grammar] = weakref.WeakValueDictionary()
        self.held_bytes = 0
        self.lock = threading.Lock()

    def end_processes(self) -> None:
        """End the processes that compile, and with them what is being compiled."""
        if self.compiler.done() and self.compiler.exception() is None:
            self.compiler.result().close()

    def close(self) -> None:
        self.drafting.shutdown(cancel_futures=True)
        self.compiler.exception()
        self.end_processes()
        self.quick.pool.shutdown(cancel_futures=True)
        self.thorough.pool.shutdown(cancel_futures=True)

    async def compiled(self, param: str, method: str, *arguments: Any, **options: Any) -> "Grammar":
        """Return the grammar that a method of the compiler drafts; ApiError names `param`."""
        try:
            compiler = await asyncio.wrap_future(self.compiler)
            draw = partial(getattr(compiler, method), *arguments, **options)
            draft = await asyncio.get_running_loop().run_in_executor(self.drafting, draw)
            return await self.grammar_of(draft, compiler, param)
        except BadInputError as error:
            raise ApiError(400, str(error), param, "invalid_grammar") from error
        except NoAnswerError as error:
            raise of_no_answer(error) from error

    async def grammar_of(self, draft: Draft, compiler: GrammarCompiler, param: str) -> "Grammar":
        key = hashlib.sha256(draft.text.encode()).digest()
        grammar = self.used.get(key)
        if grammar is not None and grammar.is_fresh:
            return grammar
        if key not in self.thorough.proved and key not in self.thorough.relaxed:
            try:
                return await self.queued_grammar(self.quick, key, draft, compiler, param)
            except CostlyGrammarError:
                pass
        return await self.queued_grammar(self.thorough, key, draft, compiler, param)

    async def queued_grammar(
        self, queue: CompileQueue, key: bytes, draft: Draft, compiler: GrammarCompiler, param: str
    ) -> "Grammar":
        """Return the grammar of a draft, with all others who wait for it in a queue."""
        make = partial(self.made, queue, key, draft, compiler)
        grammar = await queue.shared(key, make, param)
        self.used[key] = grammar
        return grammar

    def made(
        self, queue: CompileQueue, key: bytes, draft: Draft, compiler: GrammarCompiler
    ) -> "Grammar":
        """Return a grammar, made on a queue's thread; one that was proved before is not again."""
        proved, num_bytes = self.proof_of(queue, key, draft, compiler)
        self.hold(num_bytes)
        try:
            grammar = compiler.build(proved)
        except BaseException:
            self.hold(-num_bytes)
            raise
        weakref.finalize(grammar, self.hold, -num_bytes).atexit = False
        if proved is draft:
            queue.proved[key] = num_bytes
        else:
            queue.relaxed[key] = Draft(proved.name, proved.text, unexplained), num_bytes
        return grammar

    def proof_of(
        self, queue: CompileQueue, key: bytes, draft: Draft, compiler: GrammarCompiler
    ) -> tuple[Draft, int]:
        """Return what of a draft makes a grammar, and its bytes; proved but once where possible."""
        if (num_bytes := queue.proved.get(key)) is not None:
            return draft, num_bytes
        if found := queue.relaxed.get(key):
            return found
        return compiler.prove(draft, is_quick=queue is self.quick)

    def hold(self, num_bytes: int) -> None:
        """Count what grammars take, or no longer take; 429 where they take too much."""
        with self.lock:
            held = self.held_bytes + num_bytes
            if held > max(self.held_bytes, self.settings.max_grammars_bytes):
                message = (
                    f"grammars for other requests already use {self.held_bytes // MEBIBYTE} MiB; "
                    "retry later"
                )
                raise ApiError(429, message, None, "grammars_full", RETRY)
            self.held_bytes = held


def unexplained(problem: object, _problem_of: object) -> str:
    raise AssertionError(f"a grammar that was proved has no problem, got {problem}")


def make_compiler(
    tokenizer: "GlmTokenizer",
    vocab_size: int,
    ending_ids: Collection[int],
    template: "ChatTemplate | None",
) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, vocab_size, ending_ids, spelling_of(template))

"""`AsyncLLM`: the same for programs that run in an event loop."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cached_property, partial
from types import TracebackType
from typing import Self, TypeVar, Unpack

from glm_engine.core.errors import BadInputError
from glm_engine.llm.chat_options import ChatKeywords, ChatOptions
from glm_engine.llm.jobs import Job
from glm_engine.llm.llm import NUM_BEST
from glm_engine.llm.outputs import OutputChunk, RequestOutput, ScoreOutput
from glm_engine.llm.sequence import Batch
from glm_engine.llm.session import Conversations, Opened, Params, Prompts, Session

Result = TypeVar("Result")


class AsyncLLM(Opened):
    """A model in this process, for any number of tasks of one event loop.

    Its arguments and answers are those of `LLM`; the constructor blocks while weights load. Close
    it, or use it in an `async with` block. A task that is cancelled takes its call off the engine.
    """

    _loop: asyncio.AbstractEventLoop | None = None

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "glm-prompts")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def generate(
        self, prompts: Prompts, sampling_params: Params | None = None
    ) -> list[RequestOutput]:
        """Continue prompts; see `LLM.generate`."""
        session = self._open()
        jobs = await self._apart(partial(session.preparation.completions, prompts, sampling_params))
        return await self._outputs(session, jobs)

    async def chat(
        self,
        messages: Conversations,
        sampling_params: Params | None = None,
        **options: Unpack[ChatKeywords],
    ) -> list[RequestOutput]:
        """Answer conversations; see `LLM.chat`."""
        session = self._open()
        jobs = await self._conversations(session, messages, sampling_params, options)
        return await self._outputs(session, jobs)

    async def score(self, prompts: Prompts, num_best: int = 0) -> list[ScoreOutput]:
        """Return the log-probability of each token; see `LLM.score`."""
        NUM_BEST("num_best", num_best)
        session = self._open()
        jobs = await self._apart(partial(session.preparation.scores, prompts, num_best))
        batch = session.batch(jobs)
        await self._run(session, batch)
        return session.scores(batch, num_best)

    async def stream(
        self, prompts: Prompts, sampling_params: Params | None = None
    ) -> AsyncGenerator[OutputChunk, None]:
        """Continue prompts, and yield pieces of the answers as they come."""
        session = self._open()
        jobs = await self._apart(partial(session.preparation.completions, prompts, sampling_params))
        async with aclosing(self._chunks(session, jobs)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def stream_chat(
        self,
        messages: Conversations,
        sampling_params: Params | None = None,
        **options: Unpack[ChatKeywords],
    ) -> AsyncGenerator[OutputChunk, None]:
        """Answer conversations, and yield pieces of the answers as they come."""
        session = self._open()
        jobs = await self._conversations(session, messages, sampling_params, options)
        async with aclosing(self._chunks(session, jobs)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        """End all calls, free the engine's memory and end its processes."""
        session, self._session = self._session, None
        if session is None:
            return
        session.driver.cancel_all()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(session.model.engine.event_fd())
        await self._apart(self._closing)
        self._pool.shutdown()

    def _open(self) -> Session:
        """Return the session, its events read by the loop that runs."""
        session = super()._open()
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise BadInputError("this AsyncLLM is used in another event loop")
            self._loop = loop
            loop.add_reader(session.model.engine.event_fd(), session.driver.take_events)
        return session

    async def _apart(self, do: Callable[[], Result]) -> Result:
        """Return what a function returns that would hold the event loop up."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, do)

    async def _conversations(
        self,
        session: Session,
        messages: Conversations,
        sampling_params: Params | None,
        options: ChatKeywords,
    ) -> list[Job]:
        chosen = ChatOptions(**options)
        make = session.preparation.conversations
        return await self._apart(partial(make, messages, sampling_params, chosen))

    async def _outputs(self, session: Session, jobs: list[Job]) -> list[RequestOutput]:
        batch = session.batch(jobs)
        await self._run(session, batch)
        return session.outputs(batch)

    async def _run(self, session: Session, batch: Batch) -> None:
        async with aclosing(self._steps(session, batch)) as steps:
            async for _ in steps:
                pass

    async def _chunks(self, session: Session, jobs: list[Job]) -> AsyncGenerator[OutputChunk, None]:
        batch = session.batch(jobs, keeps_chunks=True)
        async with aclosing(self._steps(session, batch)) as steps:
            async for _ in steps:
                while batch.chunks:
                    yield batch.chunks.popleft()

    async def _steps(self, session: Session, batch: Batch) -> AsyncGenerator[None, None]:
        """Yield whenever something has come; what ends a call early ends it on the engine."""
        news = asyncio.Event()
        batch.wake = news.set
        try:
            session.driver.add(batch)
            while not batch.is_over:
                await news.wait()
                news.clear()
                yield
            if batch.failure is not None:
                raise batch.failure
        finally:
            session.driver.cancel(batch)

"""Answers the requests of a batch that have no result yet, several at a time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from glm_engine.batch.asking import Answer, Application, ask
from glm_engine.batch.requests_file import BatchRequest, RequestsFile
from glm_engine.batch.results_file import ResultsFile
from glm_engine.core.errors import ExitCode, GlmError

RETRY_SECONDS = 1.0
MOST_TRIES = 60
BUSY, UNAVAILABLE = 429, 503


class LostEngineError(GlmError):
    """The engine can answer nothing any more."""

    exit_code = ExitCode.ENGINE


class Batch:
    """The requests and results of one run.

    num_at_once: how many requests are asked at the same time.
    is_usable: says whether the engine can still answer.
    progress: called with each result.
    statuses: how many results there were of each HTTP status.
    """

    def __init__(
        self,
        requests: RequestsFile,
        results: ResultsFile,
        num_at_once: int,
        is_usable: Callable[[], bool],
        progress: Callable[[], None],
    ) -> None:
        self.requests = requests
        self.results = results
        self.num_at_once = num_at_once
        self.is_usable = is_usable
        self.progress = progress
        self.statuses: Counter[int] = Counter()

    async def run(self, app: Application) -> None:
        """Answer all; whatever ends this early leaves each result whole or not there."""
        waiting = iter([one for one in self.requests.requests if self.is_open(one)])
        tasks = [asyncio.create_task(self.work(app, waiting)) for _ in range(self.num_at_once)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def is_open(self, request: BatchRequest) -> bool:
        """Say whether a request has no result yet."""
        return request.custom_id not in self.results.done

    async def work(self, app: Application, waiting: Iterator[BatchRequest]) -> None:
        for request in waiting:
            answer = await self.answer(app, request)
            body = answer.body
            self.results.write(request.custom_id, answer.status, answer.request_id, body)
            self.statuses[answer.status] += 1
            self.progress()

    async def answer(self, app: Application, request: BatchRequest) -> Answer:
        """Return the answer to a request, asked again while the service is busy."""
        body = self.requests.body(request)
        for _ in range(MOST_TRIES):
            answer = await ask(app, request.url, body)
            raise_if_cancelled()
            if not self.is_usable():
                raise LostEngineError(
                    "the engine failed. The results so far are kept: run the command again"
                )
            if answer.status not in (BUSY, UNAVAILABLE):
                break
            await asyncio.sleep(RETRY_SECONDS)
        return answer


def raise_if_cancelled() -> None:
    """Raise CancelledError in a task that was cancelled while an application answered.

    An application may turn the cancelling into an answer of its own.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

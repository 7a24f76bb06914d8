"""`LLM`: offline inference, many prompts at once."""

from collections.abc import Generator
from types import TracebackType
from typing import Self, Unpack

from glm_engine.core.checks import Whole
from glm_engine.llm.chat_options import ChatKeywords, ChatOptions
from glm_engine.llm.interrupts import uninterrupted
from glm_engine.llm.jobs import Job
from glm_engine.llm.outputs import OutputChunk, RequestOutput, ScoreOutput
from glm_engine.llm.sequence import Batch
from glm_engine.llm.session import Conversations, Opened, Params, Prompts, Session

NUM_BEST = Whole(0, 20)


class LLM(Opened):
    """A model in this process. Close it, or use it in a `with` block.

    model: a checkpoint's folder, or ORG/NAME of a model on the Hugging Face hub, which is
    downloaded if necessary; None is `capitals`, a small model that comes with the engine.
    tokenizer: another folder or ORG/NAME to take the tokenizer and chat template from.
    seed: with it, prompts that state no seed draw the same answers in each run of a program.
    quiet: whether to print nothing while weights load.
    options: see `EngineKeywords`.

    Answers are those of `glm serve` for the same request, bit by bit, whatever runs beside them.
    Ctrl-C cancels the call that runs and leaves the LLM usable. Threads may share an LLM.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def generate(
        self, prompts: Prompts, sampling_params: Params | None = None
    ) -> list[RequestOutput]:
        """Continue prompts; returns an output for each, in their order.

        prompts: a text, a list of token ids, a dictionary with `prompt` or `prompt_token_ids`, or a
        list of those, of any length.
        sampling_params: for all prompts, or a list with one for each.
        BadInputError says which prompt is wrong, before any runs; EngineError ends the call.
        """
        session = self._open()
        return self._outputs(session, session.preparation.completions(prompts, sampling_params))

    def chat(
        self,
        messages: Conversations,
        sampling_params: Params | None = None,
        **options: Unpack[ChatKeywords],
    ) -> list[RequestOutput]:
        """Answer a conversation, or each of a list of them, through the model's chat template.

        messages: dictionaries with role and content, as in OpenAI's API.
        The outputs have `content`, `reasoning` and `tool_calls` beside the whole `text`.
        """
        session, chosen = self._open(), ChatOptions(**options)
        jobs = session.preparation.conversations(messages, sampling_params, chosen)
        return self._outputs(session, jobs)

    def score(self, prompts: Prompts, num_best: int = 0) -> list[ScoreOutput]:
        """Return the log-probability of each token of texts or lists of token ids.

        num_best: how many of the most likely tokens to list in each place, 0 to 20.
        """
        NUM_BEST("num_best", num_best)
        session = self._open()
        batch = session.batch(session.preparation.scores(prompts, num_best))
        self._run(session, batch)
        return session.scores(batch, num_best)

    def stream(
        self, prompts: Prompts, sampling_params: Params | None = None
    ) -> Generator[OutputChunk, None, None]:
        """Continue prompts like `generate`, and yield pieces of the answers as they come.

        Closing the iterator, or leaving it to the garbage collector, cancels what still runs.
        """
        session = self._open()
        return self._chunks(session, session.preparation.completions(prompts, sampling_params))

    def stream_chat(
        self,
        messages: Conversations,
        sampling_params: Params | None = None,
        **options: Unpack[ChatKeywords],
    ) -> Generator[OutputChunk, None, None]:
        """Answer conversations like `chat`, and yield pieces of the answers as they come."""
        session, chosen = self._open(), ChatOptions(**options)
        jobs = session.preparation.conversations(messages, sampling_params, chosen)
        return self._chunks(session, jobs)

    def close(self) -> None:
        """Free the engine's memory and end its processes. A second call does nothing."""
        self._session = None
        self._closing()

    def _outputs(self, session: Session, jobs: list[Job]) -> list[RequestOutput]:
        batch = session.batch(jobs)
        self._run(session, batch)
        return session.outputs(batch)

    def _chunks(self, session: Session, jobs: list[Job]) -> Generator[OutputChunk, None, None]:
        batch = session.batch(jobs, keeps_chunks=True)
        for _ in self._steps(session, batch):
            while batch.chunks:
                yield batch.chunks.popleft()

    def _run(self, session: Session, batch: Batch) -> None:
        for _ in self._steps(session, batch):
            pass

    def _steps(self, session: Session, batch: Batch) -> Generator[None, None, None]:
        """Yield whenever something may have come; what ends a call early ends it on the engine."""
        driver = session.driver
        try:
            uninterrupted(lambda: driver.add(batch))
            while not batch.is_over:
                uninterrupted(driver.advance)
                yield
            if batch.failure is not None:
                raise batch.failure
        finally:
            if batch.num_open:
                uninterrupted(lambda: driver.cancel(batch))
                driver.settle(batch)

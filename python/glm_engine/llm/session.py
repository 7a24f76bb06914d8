"""An engine with what both interfaces share: preparation, driver, outputs."""

import itertools
import weakref
from collections.abc import Mapping, Sequence
from typing import Unpack

from glm_engine.core.checks import Whole, text_of
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import CAPITALS
from glm_engine.hub.names import find_checkpoint, tokenizer_of
from glm_engine.llm.driver import Driver
from glm_engine.llm.jobs import Job
from glm_engine.llm.model import Model
from glm_engine.llm.options import EngineKeywords, engine_options
from glm_engine.llm.outputs import Messages, PlaceLogprobs, RequestOutput, ScoreOutput
from glm_engine.llm.preparation import Preparation, Prompt
from glm_engine.llm.sampling_params import SamplingParams
from glm_engine.llm.sequence import Answer, Batch

Prompts = Prompt | Sequence[Prompt]
Params = SamplingParams | Sequence[SamplingParams]
Conversations = Messages | Sequence[Messages]
SEED = Whole(0, 2**64 - 1)


class Session:
    """One loaded model and the calls on it."""

    def __init__(
        self,
        model: str | None,
        tokenizer: str | None,
        seed: int | None,
        quiet: bool,
        options: Mapping[str, object],
    ) -> None:
        if seed is not None:
            SEED("LLM: seed", seed)
        wanted = str(CAPITALS) if model is None else text_of("LLM: model", model)
        stated = engine_options("", options)
        stated.model_dir = find_checkpoint(wanted)
        folder = tokenizer_of(tokenizer, stated.model_dir)
        self.model = Model(folder, stated, quiet)
        self.preparation = Preparation(self.model, seed)
        self.driver = Driver(self.model.engine, self.model.max_batch)
        self.numbers = itertools.count()

    def batch(self, jobs: list[Job], keeps_chunks: bool = False) -> Batch:
        """Return the call that answers jobs."""
        return Batch(jobs, self.model.tokenizer, keeps_chunks)

    def outputs(self, batch: Batch) -> list[RequestOutput]:
        """Return the outputs of a call that is over, in the order of its prompts."""
        return [
            RequestOutput(
                request_id=str(next(self.numbers)),
                prompt=job.prompt,
                prompt_token_ids=list(job.request.prompt),
                outputs=[answer.output for answer in answers if answer.output is not None],
                prompt_logprobs=prompt_logprobs(batch, job, answers[0]),
                num_cached_tokens=batch.num_cached[job.number],
            )
            for job, answers in zip(batch.jobs, batch.answers, strict=True)
        ]

    def scores(self, batch: Batch, num_best: int) -> list[ScoreOutput]:
        """Return the log-probabilities of a call of `score`."""
        return [
            ScoreOutput(
                prompt=job.prompt,
                token_ids=list(job.request.prompt),
                logprobs=[None, *(logprob for _, logprob, _ in answers[0].prompt_rows)],
                top_logprobs=prompt_logprobs(batch, job, answers[0]) if num_best else None,
            )
            for job, answers in zip(batch.jobs, batch.answers, strict=True)
        ]

    def close(self) -> None:
        """Cancel all calls, free the engine, and end the processes of template and grammars."""
        self.driver.cancel_all()
        self.driver.settle()
        self.model.close()


class Opened:
    """What `LLM` and `AsyncLLM` have in common."""

    def __init__(
        self,
        model: str | None = None,
        *,
        tokenizer: str | None = None,
        seed: int | None = None,
        quiet: bool = False,
        **options: Unpack[EngineKeywords],
    ) -> None:
        self._session: Session | None = Session(model, tokenizer, seed, quiet, options)
        self._closing = weakref.finalize(self, self._session.close)

    @property
    def max_model_len(self) -> int:
        """At most how many tokens a prompt and its answer have together."""
        return self._open().model.max_seq

    def _open(self) -> Session:
        if self._session is None:
            raise BadInputError(f"this {type(self).__name__} is closed")
        return self._session


def prompt_logprobs(batch: Batch, job: Job, first: Answer) -> list[PlaceLogprobs | None] | None:
    """Return the log-probabilities of a prompt; None unless asked for."""
    if job.params.prompt_logprobs is None:
        return None
    return [None, *(batch.place_logprobs(*row) for row in first.prompt_rows)]

"""One prompt of a call: the engine's request for it, and how its answers are read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from glm_engine.core.engine import Request
from glm_engine.llm.constraints import Constraint, Layout, parser_of
from glm_engine.llm.messages import Message
from glm_engine.llm.sampling_params import SamplingParams
from glm_engine.text.dialogue import AnswerFinder, DialogueParser, Opening
from glm_engine.text.grammar import Grammar

SEED_BITS = 64
SEED_MASK: int = 2**SEED_BITS - 1
Ids = Sequence[int]


@dataclass(frozen=True)
class ChatTurn:
    """How a chat's answer is read."""

    constraint: Constraint | None
    layout: Layout
    tools: list[Message]
    takes_one_call: bool

    def parser(self) -> DialogueParser:
        """Return the parser of one answer."""
        return parser_of(self.constraint, self.layout, self.tools)

    def finder(self) -> AnswerFinder:
        """Return what finds where the answer begins, before which no stop text counts."""
        return AnswerFinder(**self.layout.arguments())


@dataclass(frozen=True)
class Job:
    """One prompt of a call, with the request of its first answer.

    ending_ids: tokens that end an answer; cutting_ids: those of them that the caller stated.
    """

    number: int
    prompt: str | None
    params: SamplingParams
    request: Request
    ending_ids: frozenset[int]
    cutting_ids: frozenset[int]
    grammar: Grammar | None = None
    opening: Opening = Opening.ANSWER
    turn: ChatTurn | None = None

    def request_of(self, index: int) -> Request:
        """Return the request of answer `index`."""
        if index == 0:
            return self.request
        sampling = self.request.sampling
        seed = (sampling.seed + index) & SEED_MASK
        return replace(self.request, sampling=replace(sampling, seed=seed), num_prompt_logprobs=-1)

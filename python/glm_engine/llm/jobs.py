"""One prompt of a call: what it asks for, the engine's request for it, how its answers are read."""

from collections.abc import Sequence
from dataclasses import dataclass

from glm_engine.core.engine import Request
from glm_engine.llm.sampling_params import SamplingParams
from glm_engine.text.conversation import Conversation
from glm_engine.text.dialogue import Opening
from glm_engine.text.grammar import Grammar

Ids = Sequence[int]


@dataclass(frozen=True)
class Job:
    """One prompt of a call, with the request of its first answer.

    ending_ids: tokens that end an answer; cutting_ids: those of them that the caller stated.
    """

    number: int
    prompt: str | None
    params: SamplingParams
    conversation: Conversation
    request: Request
    ending_ids: frozenset[int]
    cutting_ids: frozenset[int]
    grammar: Grammar | None = None
    opening: Opening = Opening.ANSWER
    takes_one_call: bool = False

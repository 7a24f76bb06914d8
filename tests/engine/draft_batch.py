"""A batch of sequences whose drafts the engine chooses, timed by given step costs."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.engine.probes import int32s, library

MOST_ROWS = 256
MOST_DRAFTS = 7
NEVER_DUE = -1


@dataclass(frozen=True)
class StepTimes:
    """What a step costs by its decode rows, and each token of its context."""

    rows: Sequence[int]
    ns: Sequence[int]
    context_ns: float = 0.0

    def step_ns(self, num_rows: int, context: int = 0) -> float:
        return float(np.interp(num_rows, self.rows, self.ns)) + self.context_ns * context


class DraftBatch:
    """The estimates of so many sequences, and the choice of their drafts."""

    def __init__(self, num_sequences: int, times: StepTimes):
        self.size, self.times, self.library = num_sequences, times, library()
        ns = (ctypes.c_int64 * len(times.ns))(*times.ns)
        self.handle = self.library.draft_batch_open(
            num_sequences, len(ns), int32s(times.rows), ns, times.context_ns
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.library.draft_batch_close(self.handle)

    def renew(self, index: int) -> None:
        """Another request takes the place of this one."""
        self.library.draft_batch_renew(self.handle, index)

    def believe(self, probabilities: list[float]) -> None:
        """Sets the estimates; from now on no sequence is due for a probe."""
        self.library.draft_batch_believe(self.handle, (ctypes.c_float * self.size)(*probabilities))

    def beliefs(self) -> list[float]:
        found = (ctypes.c_float * self.size)()
        self.library.draft_batch_beliefs(self.handle, found)
        return list(found)

    def choose(
        self, available: list[int], spare: int, positions: list[int], contexts: list[int]
    ) -> list[int]:
        drafts = int32s(available)
        self.library.draft_batch_choose(
            self.handle, int32s(positions), int32s(contexts), spare, drafts
        )
        return list(drafts)

    def learn(self, positions: list[int], tried: list[int], accepted: list[int]) -> None:
        self.library.draft_batch_learn(
            self.handle, int32s(positions), int32s(tried), int32s(accepted)
        )


class Course:
    """Steps of a full batch, in which another request follows each that has ended.

    A step that is planned ahead knows nothing of the step in flight. With `fixed` each sequence
    gets so many drafts instead of those that the engine chooses.
    """

    def __init__(
        self,
        batch: DraftBatch,
        is_right: Callable[[int], bool],
        plans_ahead: bool = False,
        max_tokens: int = 512,
        fixed: int | None = None,
    ):
        self.batch, self.is_right, self.fixed = batch, is_right, fixed
        self.max_tokens, self.plans_ahead = max_tokens, plans_ahead
        self.positions = [0] * batch.size
        self.in_flight: tuple[list[int], list[int], list[int]] | None = None
        self.num_tokens, self.num_drafts, self.ns = 0, 0, 0.0

    def choose(self) -> list[int]:
        available = [min(MOST_DRAFTS, self.max_tokens - one - 1) for one in self.positions]
        spare = MOST_ROWS - self.batch.size
        if self.fixed is not None:
            return fixed_drafts(self.fixed, available, spare)
        due = list(self.positions)
        for index, num_drafts in enumerate(self.in_flight[1] if self.in_flight else ()):
            due[index] = NEVER_DUE if num_drafts else due[index]
        return self.batch.choose(available, spare, due, [0] * self.batch.size)

    def num_right(self, position: int, num_drafts: int) -> int:
        for place in range(num_drafts):
            if not self.is_right(position + place):
                return place
        return num_drafts

    def step(self) -> list[int]:
        """One step; returns the drafts of each sequence."""
        chosen = self.choose()
        accepted = [self.num_right(*one) for one in zip(self.positions, chosen, strict=True)]
        self.positions = [p + 1 + n for p, n in zip(self.positions, accepted, strict=True)]
        self.num_tokens += self.batch.size + sum(accepted)
        self.num_drafts += sum(chosen)
        self.ns += self.batch.times.step_ns(self.batch.size + sum(chosen))
        landed, self.in_flight = self.in_flight, (self.positions, list(chosen), accepted)
        if not self.plans_ahead:
            landed, self.in_flight = self.in_flight, None
        if landed:
            self.batch.learn(*landed)
        self.replace_ended()
        return chosen

    def replace_ended(self) -> None:
        self.positions = list(self.positions)
        for index in range(self.batch.size):
            if self.positions[index] >= self.max_tokens:
                self.batch.renew(index)
                self.positions[index] = 0
                if self.in_flight:
                    self.in_flight[1][index] = 0

    def run(self, num_steps: int) -> float:
        """So many steps; returns the tokens a second, over those without drafts."""
        for _ in range(num_steps):
            self.step()
        plain_ns = self.batch.times.step_ns(self.batch.size) / self.batch.size
        return self.num_tokens * plain_ns / self.ns


def fixed_drafts(most: int, available: list[int], spare: int) -> list[int]:
    chosen = []
    for number in available:
        chosen.append(min(number, most, spare))
        spare -= chosen[-1]
    return chosen

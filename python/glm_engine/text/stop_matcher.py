"""Finds stop sequences in a stream of text, and holds back what may begin one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from glm_engine.text.dialogue.answer_finder import AnswerFinder


class StopMatcher:
    """Holds text back while it may still be the beginning of a stop sequence.

    The stop itself is dropped, or with `keeps_stop` the last text that comes; `found` is it.
    With `finder`, an `AnswerFinder`, stops stand in the answer alone, and may begin in the layout
    before it.
    """

    def __init__(
        self, stops: Iterable[str], keeps_stop: bool = False, finder: "AnswerFinder | None" = None
    ) -> None:
        self.stops = [stop for stop in stops if stop]
        self.keeps_stop = keeps_stop
        self.finder = finder
        self.counts = True
        self.held = ""
        self.num_uncounted = 0
        self.found: str | None = None

    @property
    def stopped(self) -> bool:
        return self.found is not None

    def push(self, text: str, counts: bool = True) -> str:
        """Return the text that is safe to show; after a stop, always empty.

        counts: whether a stop may end in this text; it may begin in any.
        """
        if self.finder is None:
            return self.match(text, counts)
        self.counts = counts
        return self.match_parts(self.finder.push(text))

    def match_parts(self, parts: tuple[str, str, str]) -> str:
        """Match what a finder told apart; the thought is over before anything else comes."""
        thought, layout, answer = parts
        return thought + self.match(layout, False) + self.match(answer, self.counts)

    def match(self, text: str, counts: bool) -> str:
        if self.stopped:
            return ""
        self.held += text
        if not counts:
            self.num_uncounted = len(self.held)
        found = [(at, stop) for stop in self.stops if (at := self.place_of(stop)) >= 0]
        if found:
            at, self.found = min(found)
            return self.release(at + len(self.found) * self.keeps_stop, drop_rest=True)
        return self.release(len(self.held) - self.open_prefix())

    def place_of(self, stop: str) -> int:
        """Return where a stop begins that ends in text that counts, else -1."""
        return self.held.find(stop, max(0, self.num_uncounted - len(stop) + 1))

    def finish(self) -> str:
        """Return what was held back, now that no more text comes."""
        rest = "" if self.finder is None else self.match_parts(self.finder.finish())
        return rest + ("" if self.stopped else self.release(len(self.held)))

    def release(self, length: int, drop_rest: bool = False) -> str:
        text, rest = self.held[:length], self.held[length:]
        self.held = "" if drop_rest else rest
        self.num_uncounted = max(0, self.num_uncounted - length)
        return text

    def open_prefix(self) -> int:
        """Return the length of the longest end of the text that begins a stop."""
        longest = max((len(stop) for stop in self.stops), default=1) - 1
        for length in range(min(longest, len(self.held)), 0, -1):
            if any(stop.startswith(self.held[-length:]) for stop in self.stops):
                return length
        return 0

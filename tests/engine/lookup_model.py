"""Prompt lookup in Python: where the tokens of a request come again, and what comes behind them."""

from collections import defaultdict
from collections.abc import Sequence

SHORTEST = 3
LONGEST = 32
CANDIDATES = 16
MULTIPLIER = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def common_end(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts end with in common, up to `LONGEST`."""
    length = 0
    while (
        length < min(len(first), len(second), LONGEST) and first[-1 - length] == second[-1 - length]
    ):
        length += 1
    return length


class LookupModel:
    """What `terra/scheduling/lookup.t` must propose: slow, and without a chain of places."""

    def __init__(self, num_tokens: int, prediction: Sequence[int], prompt: Sequence[int]):
        self.bits = min(max((num_tokens - 1).bit_length(), 4), 16)
        self.prediction, self.own = list(prediction), list(prompt)
        self.places = defaultdict(list)
        for place in range(SHORTEST, len(prediction)):
            self.places[self.slot(self.prediction, place, True)].append((self.prediction, place))
        for place in range(SHORTEST, len(prompt)):
            self.places[self.slot(self.own, place, False)].append((self.own, place))
        self.source = (self.prediction, 0) if prediction else self.search()

    def slot(self, text: Sequence[int], place: int, in_prediction: bool) -> int:
        first, second, third = text[place - SHORTEST : place]
        key = (first << 42) ^ (second << 21) ^ third
        key ^= MASK if in_prediction else 0
        return ((key * MULTIPLIER) & MASK) >> (64 - self.bits)

    def search(self):
        """The place behind the longest match: of the prediction first, of the latest first."""
        if len(self.own) < SHORTEST:
            return None
        kinds = (True, False) if self.prediction else (False,)
        best, longest = None, SHORTEST - 1
        for in_prediction in kinds:
            slot = self.slot(self.own, len(self.own), in_prediction)
            for text, place in self.places[slot][: -CANDIDATES - 1 : -1]:
                length = common_end(text[:place], self.own)
                if length > longest:
                    best, longest = (text, place), length
        return best

    def push(self, token: int) -> None:
        follows = self.source is not None and self.source[0][self.source[1]] == token
        if len(self.own) >= SHORTEST:
            slot = self.slot(self.own, len(self.own), False)
            self.places[slot].append((self.own, len(self.own)))
        self.own.append(token)
        if follows:
            text, place = self.source
            self.source = (text, place + 1)
        if not follows or self.continuation(1) == []:
            self.source = self.search()

    def continuation(self, most: int) -> list[int]:
        if self.source is None:
            return []
        text, place = self.source
        if text is self.prediction:
            return text[place : place + most]
        found = text[place:]
        while len(found) < most:
            found += found
        return found[:most]

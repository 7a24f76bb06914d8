"""Which tokens spell a text: the parser holds text back, and leaves tags and spaces out."""

from array import array
from bisect import bisect_left

from glm_engine.server.logprob_rows import LogprobRows


class TokenPlaces:
    """Tokens of a choice whose text no delta has told yet, with their log-probabilities if any."""

    def __init__(self):
        self.begins, self.ends = array("q"), array("q")
        self.rows = LogprobRows()

    def add(self, piece):
        """Take the tokens of a piece."""
        self.begins.extend(begin for begin, _ in piece.places)
        self.ends.extend(end for _, end in piece.places)
        self.rows.extend(piece.logprobs)

    def spelling(self, delta):
        """Return the number and the rows of the tokens that spell a delta, the first that are left.

        All up to its end are forgotten.
        """
        begin, count = delta.end - len(delta.text), bisect_left(self.begins, delta.end)
        first = self.first_in(begin, count)
        rows = self.rows.part(first, count)
        del self.begins[:count], self.ends[:count]
        self.rows = self.rows.part(count)
        return count - first, rows

    def first_in(self, begin, count):
        """Return the first of `count` tokens that begins at a place or ends behind it."""
        places = zip(self.begins[:count], self.ends, strict=False)
        inside = (token_begin >= begin or end > begin for token_begin, end in places)
        return next((at for at, is_inside in enumerate(inside) if is_inside), count)

"""Which tokens spell a text: the parser holds text back, and leaves tags and spaces out."""

from itertools import repeat


class TokenPlaces:
    """Tokens of a choice whose text no delta has told yet."""

    def __init__(self):
        self.pending = []

    def add(self, piece):
        """Take the tokens of a piece, each with its row of log-probabilities if there are any."""
        self.pending += zip(piece.places, piece.logprobs or repeat(None), strict=False)

    def spelling(self, delta):
        """Return the rows of the tokens that spell a delta, and forget all up to its end."""
        begin = delta.end - len(delta.text)
        rows, count = [], 0
        for (token_begin, token_end), row in self.pending:
            if token_begin >= delta.end:
                break
            count += 1
            if token_begin >= begin or token_end > begin:
                rows.append(row)
        del self.pending[:count]
        return rows

"""One answer on its way through a grammar."""

import numpy

from glm_engine.errors import BadInputError
from glm_engine.grammar.limits import first_line


class Matcher:
    """Says which token may come next, and takes the one that came.

    With `after`, everything is allowed until that token has come: the thought before an answer.
    """

    def __init__(self, vocabulary, state, after=None):
        self.vocabulary = vocabulary
        self.state = state
        self.after = after

    def mask(self):
        """Return uint32 words, bit t % 32 of word t / 32 for token t; None: all are allowed."""
        if self.after is not None:
            return None
        words = numpy.zeros(self.vocabulary.num_words, dtype=numpy.uint32)
        self.state.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.require_state("the next token")
        return words

    def accept(self, token_id):
        """Take the token that came; one that the mask forbids is an error."""
        if self.after is None:
            self.state.consume_token(token_id)
            self.require_state(f"token {token_id}")
        elif token_id == self.after:
            self.after = None

    def require_state(self, what):
        if self.state.is_error():
            problem = first_line(self.state.get_error())
            raise BadInputError(f"the grammar cannot go on with {what}: {problem}")

    @property
    def is_complete(self):
        """Whether the text so far is a whole one."""
        return self.after is None and self.state.is_accepting()

    @property
    def is_finished(self):
        """Whether nothing but an end of text can come."""
        return self.after is None and self.state.is_stopped()

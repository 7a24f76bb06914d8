"""One answer on its way through a grammar."""

import numpy

from glm_engine.errors import BadInputError
from glm_engine.grammar.free_text import has
from glm_engine.grammar.limits import first_line


class Matcher:
    """Says which token may come next, and takes the one that came.

    in_thought: the answer begins in a thought. Until `</think>` its text is free, but it neither
    ends nor calls; the grammar holds for what comes after.
    """

    def __init__(self, vocabulary, state, in_thought=False):
        self.vocabulary = vocabulary
        self.state = state
        self.in_thought = in_thought
        self.free_text = vocabulary.thought if in_thought else None
        self.num_spelled = 0

    def mask(self):
        """Return uint32 words, bit t % 32 of word t / 32 for token t."""
        if self.in_thought:
            return self.free_text.masks[self.num_spelled]
        words = numpy.zeros(self.vocabulary.num_words, dtype=numpy.uint32)
        self.state.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        self.require_state("the next token")
        if self.misspells(words):
            words = self.vocabulary.beginnings(self.state.compute_ff_bytes())
        if self.free_text is not None:
            words &= self.free_text.masks[self.num_spelled]
            if not words.any():
                closing = self.free_text.closing.decode()
                raise BadInputError(f"the grammar cannot go on: its text would spell {closing}")
        return words

    def misspells(self, words):
        """Say whether the one token allowed is an added one that the grammar does not take.

        llguidance offers such a token where the text that must come spells it in letters.
        """
        places = numpy.flatnonzero(words)
        if len(places) != 1:
            return False
        word = int(words[places[0]])
        token_id = 32 * int(places[0]) + word.bit_length() - 1
        is_added = word.bit_count() == 1 and token_id in self.vocabulary.added_ids
        return is_added and self.state.validate_tokens([token_id]) == 0

    def accept(self, token_id):
        """Take the token that came; one that the mask forbids is an error."""
        if self.in_thought:
            if not has(self.mask(), token_id):
                raise BadInputError(f"the grammar cannot go on with token {token_id} in a thought")
        else:
            self.state.consume_token(token_id)
            self.require_state(f"token {token_id}")
        self.follow(token_id)

    def follow(self, token_id):
        """Keep track of a text that runs free until its tag comes."""
        if self.free_text is None:
            self.free_text, self.num_spelled = self.vocabulary.values.get(token_id), 0
        elif token_id == self.free_text.closing_id:
            self.free_text, self.in_thought = None, False
        else:
            self.num_spelled = self.free_text.follow(self.num_spelled, token_id)

    def require_state(self, what):
        if self.state.is_error():
            problem = first_line(self.state.get_error())
            raise BadInputError(f"the grammar cannot go on with {what}: {problem}")

    @property
    def is_complete(self):
        """Whether the text so far is a whole one."""
        return not self.in_thought and self.state.is_accepting()

    @property
    def is_finished(self):
        """Whether nothing but an end of text can come."""
        return not self.in_thought and self.state.is_stopped()

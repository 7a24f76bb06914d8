"""What one choice has said so far, as deltas that the client wants to see."""

from glm_engine.server.places import TokenPlaces
from glm_engine.text.dialogue import CallBegin, CallEnd, Reasoning


class Turn:
    """Feeds pieces of text to the parser.

    takes_one_call: the first whole call is the last thing shown. num_thought_tokens: how many
    tokens spell the thought, shown or not. num_calls: how many calls are whole; one that is not
    may come behind them.
    """

    def __init__(self, parser, shows_reasoning=True, takes_one_call=False):
        self.parser = parser
        self.shows_reasoning = shows_reasoning
        self.takes_one_call = takes_one_call
        self.num_calls = 0
        self.num_thought_tokens = 0
        self.thought_places = TokenPlaces()
        self.num_begun = 0
        self.is_cut = False

    def take(self, piece):
        """Return the deltas of a piece of text."""
        deltas = self.parser.push(piece.text) if piece.text else []
        if piece.finish_reason:
            self.is_cut = piece.is_cut or piece.finish_reason != "stop"
            deltas = [*deltas, *self.parser.finish(self.is_cut)]
        self.count_thought(piece, deltas)
        return list(self.shown(deltas))

    def count_thought(self, piece, deltas):
        """Count the tokens of the thought, which nothing but its text comes before."""
        if self.thought_places is None:
            return
        self.thought_places.add(piece)
        for delta in deltas:
            if type(delta) is not Reasoning:
                self.thought_places = None
                return
            self.num_thought_tokens += self.thought_places.spelling(delta)[0]

    def shown(self, deltas):
        for delta in deltas:
            if self.is_over:
                return
            self.num_begun += type(delta) is CallBegin
            self.num_calls += type(delta) is CallEnd
            if self.shows_reasoning or type(delta) is not Reasoning:
                yield delta

    @property
    def is_over(self):
        """Whether nothing that may still come is shown."""
        return self.takes_one_call and self.num_calls > 0

    @property
    def asks_for_calls(self):
        """Whether the model ended the turn in order that the client makes its calls, all whole."""
        return self.is_over or (not self.is_cut and 0 < self.num_calls == self.num_begun)


def deltas_of(job, turn, choice, piece):
    """Return what a piece adds to a turn; a choice of which nothing more is shown is ended."""
    deltas = turn.take(piece)
    if turn.is_over and not piece.finish_reason:
        job.complete(choice)
    return deltas

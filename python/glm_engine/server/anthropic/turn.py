"""What a job has said so far, as deltas, and why it stopped."""

from glm_engine.dialogue import CallEnd, Reasoning


class Turn:
    """Feeds pieces of text to the parser and keeps what the client wants to see."""

    def __init__(self, parser, shows_thinking=True, takes_one_call=False, is_cut_short=False):
        self.parser = parser
        self.shows_thinking = shows_thinking
        self.takes_one_call = takes_one_call
        self.is_cut_short = is_cut_short
        self.num_calls = 0

    def take(self, piece):
        """Return the deltas of a piece of text."""
        deltas = self.parser.push(piece.text)
        if piece.finish_reason:
            deltas = [*deltas, *self.parser.finish()]
        return list(self.shown(deltas))

    def shown(self, deltas):
        for delta in deltas:
            if self.takes_one_call and self.num_calls:
                return
            if type(delta) is CallEnd:
                self.num_calls += 1
            if self.shows_thinking or type(delta) is not Reasoning:
                yield delta

    def stop(self, choice):
        """Return stop_reason and stop_sequence of a choice that has ended."""
        found = choice.matcher.found if choice.matcher else None
        if found is not None:
            return "stop_sequence", found
        if choice.finish_reason == "length":
            return ("model_context_window_exceeded" if self.is_cut_short else "max_tokens"), None
        return ("tool_use" if self.num_calls else "end_turn"), None

"""Why a turn stopped, in Anthropic's words."""

from glm_engine.server.turn import Turn


class MessageTurn(Turn):
    """is_cut_short: the context leaves less room than `max_tokens`."""

    def __init__(self, parser, shows_reasoning=True, takes_one_call=False, is_cut_short=False):
        super().__init__(parser, shows_reasoning, takes_one_call)
        self.is_cut_short = is_cut_short

    def stop(self, choice):
        """Return stop_reason and stop_sequence of a choice that has ended."""
        if self.is_over:
            return "tool_use", None
        found = choice.matcher.found if choice.matcher else None
        if found is not None:
            return "stop_sequence", found
        if self.asks_for_calls:
            return "tool_use", None
        if choice.finish_reason == "length":
            return ("model_context_window_exceeded" if self.is_cut_short else "max_tokens"), None
        return "end_turn", None

"""How an answer ended, and how fast it came."""

from dataclasses import dataclass

from glm_engine.core.acceptance import accepted_line
from glm_engine.core.console import counted, rate


@dataclass(frozen=True)
class Ending:
    """Seconds count from the question; token counts are None where the server states none.

    reason: the finish reason, as OpenAI names it.
    """

    reason: str | None
    seconds: float
    first_seconds: float | None = None
    num_tokens: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0

    def tokens_per_second(self) -> float | None:
        """Return the rate after the first token, None where there is none."""
        if self.first_seconds is None or self.num_tokens is None:
            return None
        return rate(self.num_tokens - 1, self.seconds - self.first_seconds)

    def line(self) -> str:
        """Return the figures as one line."""
        if self.num_tokens is None:
            return f"{self.seconds:.2f} s in total; the server reported no token counts"
        figures = [f"{speed:,.1f} tokens/s"] if (speed := self.tokens_per_second()) else []
        if self.first_seconds is not None:
            figures.append(f"first token after {self.first_seconds:.2f} s")
        answer = f"{counted(self.num_tokens, 'token')} in {self.seconds:.2f} s"
        prompt = f"prompt: {counted(self.prompt_tokens, 'token')}, {self.cached_tokens:,} cached"
        if self.num_draft_tokens:
            prompt += f"; {accepted_line(self.num_accepted_tokens, self.num_draft_tokens)}"
        return f"{answer} ({', '.join(figures)}); {prompt}" if figures else f"{answer}; {prompt}"

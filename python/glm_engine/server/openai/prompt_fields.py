"""What completions and chat may ask about their prompt: vLLM's fields, and what they cost."""

from typing import Annotated

from pydantic import AfterValidator

from glm_engine.server.errors import ApiError
from glm_engine.server.fields import MAX_LOGPROBS, MAX_TOKENS, StrictModel, whole

WHOLE_CONTEXT = -1
LOGPROB_BYTES = 8
ANSWERS_AT_ONCE = 8


def not_zero(value):
    if value == 0:
        raise ValueError("expected -1 (as many as fit in the context) or a positive number")
    return value


class PromptFields(StrictModel):
    prompt_logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    truncate_prompt_tokens: (
        Annotated[whole(ge=WHOLE_CONTEXT, le=MAX_TOKENS), AfterValidator(not_zero)] | None
    ) = None
    return_token_ids: bool | None = False


def num_kept(service, fields, num_outputs):
    """Return how many of a prompt's last tokens to keep, None for all; -1 leaves room to answer."""
    wanted, most = fields.truncate_prompt_tokens, service.max_seq
    if wanted is not None and wanted > most:
        message = f"truncate_prompt_tokens ({wanted}) exceeds the context length of {most} tokens"
        raise ApiError(400, message, "truncate_prompt_tokens")
    return max(1, most - num_outputs) if wanted == WHOLE_CONTEXT else wanted


def num_prompt_logprobs(fields, num_echoed=-1):
    """Return how many alternatives to ask the engine for, -1 for no log-probabilities.

    num_echoed: those that an echo lists of the prompt beside `prompt_logprobs`.
    """
    if fields.prompt_logprobs is None:
        return num_echoed
    if fields.stream:
        message = (
            "prompt_logprobs cannot be used with streaming; leave it out or set stream to false"
        )
        raise ApiError(400, message, "prompt_logprobs")
    return max(num_echoed, fields.prompt_logprobs)


def hold_prompt_logprobs(service, fields, num_tokens, num_best):
    """Count what the log-probabilities of so many prompt tokens will take until they are sent."""
    size = LOGPROB_BYTES * (num_best + 1) * num_tokens
    most = service.settings.max_bodies_bytes // ANSWERS_AT_ONCE
    if size > most:
        param = "logprobs" if fields.prompt_logprobs is None else "prompt_logprobs"
        message = (
            f"{param}: log probabilities of {num_tokens} prompt tokens need {size} bytes; the "
            f"maximum per answer is {most} (an eighth of --max-bodies-size)"
        )
        raise ApiError(400, message, param)
    service.gate.hold_answer(size)

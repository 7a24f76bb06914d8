"""The `usage` of an answer."""


def chat_usage_of(job, turns, has_prediction=False):
    """Return the counts of a job whose answers are read into turns, those of thoughts too."""
    details = {"reasoning_tokens": sum(turn.num_thought_tokens for turn in turns)}
    if has_prediction:
        details |= prediction_of(job)
    return {**usage_of(job), "completion_tokens_details": details}


def prediction_of(job) -> dict[str, int]:
    """Return how many tokens of the prediction came in the answers, and how many did not."""
    accepted, rejected = 0, 0
    for choice in job.choices:
        length = len(choice.request.prediction_tokens)
        found = min(choice.num_predicted_tokens, length)
        accepted, rejected = accepted + found, rejected + length - found
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}


def usage_of(job):
    """Return the counts of a job; a prompt counts once, however many choices it has."""
    visit = job.visit
    completion_tokens = sum(choice.num_tokens for choice in job.choices)
    return {
        "prompt_tokens": visit.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": visit.prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": visit.cached_tokens},
    }

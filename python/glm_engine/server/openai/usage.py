"""The `usage` of an answer."""


def chat_usage_of(job, turns, has_prediction=False):
    """Return the counts of a job whose answers are read into turns, those of thoughts too."""
    details = {"reasoning_tokens": sum(turn.num_thought_tokens for turn in turns)}
    if has_prediction:
        details |= drafts_of(job)
    return {**usage_of(job), "completion_tokens_details": details}


def drafts_of(job):
    """Return how many draft tokens became tokens of the answers, and how many did not."""
    accepted = sum(choice.num_accepted_tokens for choice in job.choices)
    drafted = sum(choice.num_draft_tokens for choice in job.choices)
    return {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": drafted - accepted,
    }


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

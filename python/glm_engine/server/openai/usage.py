"""The `usage` of an answer."""


def chat_usage_of(job, turns):
    """Return the counts of a job whose answers are read into turns, those of thoughts too."""
    reasoning_tokens = sum(turn.num_thought_tokens for turn in turns)
    return {
        **usage_of(job),
        "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
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

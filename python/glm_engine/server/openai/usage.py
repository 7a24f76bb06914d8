"""The `usage` of an answer."""


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

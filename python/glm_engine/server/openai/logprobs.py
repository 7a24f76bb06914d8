"""Log-probabilities in the two forms of OpenAI's interface."""

LEAST_LOGPROB = -9999.0


def finite(value):
    """A token that a mask or a bias forbids has minus infinity, which JSON cannot say."""
    return max(value, LEAST_LOGPROB)


def text_of(service, token_id):
    return service.spelling(token_id).decode("utf-8", "replace")


def chat_entry(service, token_id, logprob):
    spelled = service.spelling(token_id)
    return {
        "token": spelled.decode("utf-8", "replace"),
        "logprob": finite(logprob),
        "bytes": list(spelled),
    }


def chat_entries(service, rows):
    """Yield one entry a token, each with its best alternatives."""
    for token_id, logprob, top in rows:
        best = [chat_entry(service, *one) for one in top]
        yield {**chat_entry(service, token_id, logprob), "top_logprobs": best}


def best_tokens(service, row):
    token_id, logprob, top = row
    best = {text_of(service, one): finite(value) for one, value in top}
    return {**best, text_of(service, token_id): finite(logprob)}


def completion_lists(service, rows, offsets):
    """Return the four lists of completions, which are rendered as they are read."""
    return {
        "tokens": (text_of(service, token_id) for token_id, _, _ in rows),
        "token_logprobs": (finite(logprob) for _, logprob, _ in rows),
        "top_logprobs": (best_tokens(service, row) for row in rows),
        "text_offset": iter(offsets),
    }

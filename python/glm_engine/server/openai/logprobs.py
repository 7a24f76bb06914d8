"""Log-probabilities in the two forms of OpenAI's interface."""

import orjson

LEAST_LOGPROB = -9999.0
COMPLETION_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class JsonList:
    """A list that grows, each part rendered when it comes: a long answer is not, all at once."""

    def __init__(self):
        self.parts = []

    def extend(self, items):
        if items:
            self.parts.append(orjson.dumps(items)[1:-1])

    def fragment(self):
        return orjson.Fragment(b"[%s]" % b",".join(self.parts))


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


def chat_logprobs(service, rows):
    """Return {"content": one entry a token, each with its best alternatives}."""
    return {
        "content": [
            {
                **chat_entry(service, token_id, logprob),
                "top_logprobs": [chat_entry(service, *best) for best in top],
            }
            for token_id, logprob, top in rows
        ],
        "refusal": None,
    }


def completion_logprobs(service, piece):
    """Return the four lists of completions for the tokens of a piece."""
    made = {name: [] for name in COMPLETION_LISTS}
    for (token_id, logprob, top), (begin, _) in zip(piece.logprobs, piece.places, strict=True):
        text = text_of(service, token_id)
        made["tokens"].append(text)
        made["token_logprobs"].append(finite(logprob))
        best = {text_of(service, one): finite(value) for one, value in top}
        made["top_logprobs"].append({**best, text: finite(logprob)})
        made["text_offset"].append(begin)
    return made

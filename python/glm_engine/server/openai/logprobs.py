"""Log-probabilities in the two forms of OpenAI's interface."""

import orjson

from glm_engine.detokenizer import IncrementalDetokenizer

LEAST_LOGPROB = -9999.0
COMPLETION_LISTS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


class JsonList:
    """A list that grows, each part rendered when it comes: a long answer is not, all at once."""

    def __init__(self):
        self.parts = []

    def extend(self, items):
        if items:
            self.parts += (orjson.dumps(items)[1:-1], b",")

    def fragment(self):
        return orjson.Fragment(b"".join([b"[", *self.parts[:-1], b"]"]))


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


def best_by_text(service, rows):
    """Return log-probabilities by text; of tokens with one text, halves of characters, the best."""
    best = {}
    for token_id, logprob in rows:
        text = text_of(service, token_id)
        best[text] = max(finite(logprob), best.get(text, LEAST_LOGPROB))
    return best


def completion_logprobs(service, rows, begins):
    """Return the four lists of completions for tokens that begin at these places."""
    made = {name: [] for name in COMPLETION_LISTS}
    for (token_id, logprob, top), begin in zip(rows, begins, strict=True):
        text = text_of(service, token_id)
        value = best = None
        if logprob is not None:
            value = finite(logprob)
            best = best_by_text(service, [(token_id, logprob), *top])
        made["tokens"].append(text)
        made["token_logprobs"].append(value)
        made["top_logprobs"].append(best)
        made["text_offset"].append(begin)
    return made


class EchoedPrompt:
    """Where the tokens of a prompt begin in the text that an answer repeats.

    A token that the text does not show, such as one that the tokenizer added, takes no room.
    """

    def __init__(self, spelling, ids, text):
        self.ids = iter(ids)
        self.text = text
        self.detokenizer = IncrementalDetokenizer(spelling)
        self.end = 0

    def place(self):
        """Return where the next token begins."""
        begin, piece = self.end, self.detokenizer.push(next(self.ids))
        if self.text.startswith(piece, begin):
            self.end += len(piece)
        return begin


def prompt_entries(service, row, num_best):
    """Return vLLM's form of a prompt token: itself and the best in its place, by their ids.

    The rank of a token that is not among the best that were asked for is not known.
    """
    token_id, logprob, top = row
    if logprob is None:
        return None
    ranked = [(*best, rank) for rank, best in enumerate(top[:num_best], start=1)]
    return {
        str(one): {"logprob": finite(value), "rank": rank, "decoded_token": text_of(service, one)}
        for one, value, rank in [(token_id, logprob, None), *ranked]
    }

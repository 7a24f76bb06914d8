"""Log-probabilities in the two forms of OpenAI's interface, and in vLLM's for prompts."""

from itertools import chain

from glm_engine.text.detokenizer import IncrementalDetokenizer

LEAST_LOGPROB = -9999.0


def finite(value):
    """A token that a mask or a bias forbids has minus infinity, which JSON cannot say."""
    return None if value is None else max(value, LEAST_LOGPROB)


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


class PromptRows:
    """The rows of a choice's prompt, with so many best tokens; the first token has None."""

    def __init__(self, choice, num_best):
        self.choice = choice
        self.num_best = num_best

    def __iter__(self):
        yield self.choice.request.prompt[0], None, []
        for token_id, logprob, top in self.choice.prompt_rows:
            yield token_id, logprob, top[: self.num_best]


def best_tokens(service, row):
    """Return log-probabilities by text; of tokens with one text, halves of characters, the best."""
    token_id, logprob, top = row
    if logprob is None:
        return None
    best = {}
    for one, value in (*top, (token_id, logprob)):
        text = text_of(service, one)
        best[text] = max(finite(value), best.get(text, LEAST_LOGPROB))
    return best


def completion_lists(service, offsets, *parts):
    """Return the four lists of completions, which are rendered as they are read.

    parts: iterables of rows, one behind the other.
    """
    return {
        "tokens": (text_of(service, token_id) for token_id, _, _ in chain(*parts)),
        "token_logprobs": (finite(logprob) for _, logprob, _ in chain(*parts)),
        "top_logprobs": (best_tokens(service, row) for row in chain(*parts)),
        "text_offset": iter(offsets),
    }


def echoed_offsets(spelling, ids, text):
    """Yield where each token of a prompt begins in the text that an answer repeats.

    A token that the text does not show, such as one that the tokenizer added, takes no room.
    """
    detokenizer, end = IncrementalDetokenizer(spelling), 0
    for token_id in ids:
        yield end
        piece = detokenizer.push(token_id)
        if text.startswith(piece, end):
            end += len(piece)


def prompt_entries(service, rows):
    """Yield vLLM's form of each prompt token: itself and the best in its place, by their ids.

    The rank of a token that is not among the best that were asked for is not known.
    """
    for token_id, logprob, top in rows:
        if logprob is None:
            yield None
            continue
        ranked = [(*best, rank) for rank, best in enumerate(top, start=1)]
        yield {
            str(one): {
                "logprob": finite(value),
                "rank": rank,
                "decoded_token": text_of(service, one),
            }
            for one, value, rank in [(token_id, logprob, None), *ranked]
        }

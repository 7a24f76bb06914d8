"""What a request forbids of its tokens, as the engine takes it."""

from glm_engine.server.errors import ApiError
from glm_engine.text.dialogue.tags import THINK_END

ALLOWED = "allowed_token_ids"


async def token_rules(service, fields, thought=None):
    """Return the fields of the engine's request that hold the rules; ApiError names a wrong one.

    thought: the limit of a thought, or None.
    """
    allowed = fields.allowed_token_ids or ()
    if allowed:
        service.encoder.check_known(allowed, service.vocab_size, ALLOWED)
    if allowed and thought is not None and thought.end_token not in allowed:
        message = (
            f"{ALLOWED}: expected token {thought.end_token} ({THINK_END}) in the list, because the "
            "request sets a thinking budget"
        )
        raise ApiError(400, message, ALLOWED)
    return {
        "thought": thought,
        "allowed_tokens": tuple(allowed),
        "bad_words": await bad_words(service, fields.bad_words or ()),
    }


async def bad_words(service, words):
    """Return the tokens of each word, and of each after a space, as vLLM has them."""
    size = sum(map(len, words))
    return await service.encoder.apart(size, ids_of_words, service.tokenizer, words)


def ids_of_words(tokenizer, words):
    texts = dict.fromkeys(text for word in words for text in spellings(word))
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


def spellings(word):
    bare = word.lstrip()
    return (bare, f" {bare}") if bare else (word,)

"""What a request forbids of its tokens, as the engine takes it."""


async def token_rules(service, fields):
    """Return the fields of the engine's request that hold the rules; ApiError names a wrong one."""
    if fields.allowed_token_ids:
        ids = fields.allowed_token_ids
        service.encoder.check_known(ids, service.vocab_size, "allowed_token_ids")
    return {
        "allowed_tokens": tuple(fields.allowed_token_ids or ()),
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

"""Text that runs free until the token of a tag: it may not spell that tag itself.

Who reads the text sees no tokens, so a tag that is spelled in letters ends what the tag ends.
"""

import numpy


class FreeText:
    """The masks of a text that only `closing`, a tag with a token of its own, ends.

    ids: those that may come in the text; the tag's own may always come.
    masks[n]: uint32 words of what may come after text that ends in the first n bytes of the tag.
    """

    def __init__(self, tokenizer, num_words, closing, ids):
        self.tokenizer = tokenizer
        self.closing = closing.encode()
        self.closing_id = tokenizer.id_of(closing)
        enders = spelled_with(tokenizer, closing[-1], ids - {self.closing_id})
        allowed = ids | {self.closing_id}
        self.masks = numpy.stack(
            [words_of(allowed - self.completing(size, enders), num_words) for size in self.sizes()]
        )
        self.masks.flags.writeable = False

    def sizes(self):
        return range(len(self.closing))

    def completing(self, size, enders):
        """Return the ids that spell the tag to its end after its first `size` bytes."""
        begin = self.closing[:size]
        return {token for token, text in enders.items() if self.closing in begin + text}

    def follow(self, size, token_id):
        """Return how many bytes of the tag the text ends in, `size` before this token."""
        text = self.closing[:size] + self.tokenizer.bytes_of(token_id)
        return max(size for size in self.sizes() if text.endswith(self.closing[:size]))


def spelled_with(tokenizer, letter, ids):
    """Return the bytes of those ids that spell an ASCII letter."""
    table = tokenizer.vocabulary()
    return {
        token: tokenizer.bytes_of(token)
        for text, token in table.items()
        if letter in text and token in ids
    }


def words_of(ids, num_words):
    """Return a mask that holds exactly these ids."""
    bits = numpy.zeros(32 * num_words, dtype=numpy.uint8)
    bits[list(ids)] = 1
    return numpy.packbits(bits, bitorder="little").view(numpy.uint32)


def has(mask, token_id):
    return bool(mask[token_id >> 5] >> (token_id & 31) & 1)

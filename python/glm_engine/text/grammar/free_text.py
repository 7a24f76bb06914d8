"""Text that runs free until the token of a tag: it may not spell that tag, or others, itself.

Who reads the text sees no tokens, so a tag that is spelled in letters ends what the tag ends.
"""

import numpy


class FreeText:
    """The masks of a text that only `closing`, a tag with a token of its own, ends.

    ids: those that may come in the text; the tag's own may always come. others: tags that the
    text may not spell either; all end in one letter.
    begun[n]: the n-th beginning of a tag that text may end in; the first is empty.
    masks[n]: uint32 words of what may come after it.
    """

    def __init__(self, tokenizer, num_words, closing, ids, others=()):
        self.tokenizer = tokenizer
        self.closing = closing.encode()
        self.closing_id = tokenizer.id_of(closing)
        self.tags = list(dict.fromkeys(tag.encode() for tag in (closing, *others)))
        self.begun = sorted({tag[:size] for tag in self.tags for size in range(len(tag))})
        enders = spelled_with(tokenizer, closing[-1], ids - {self.closing_id})
        allowed = ids | {self.closing_id}
        self.masks = numpy.stack(
            [words_of(allowed - self.completing(begin, enders), num_words) for begin in self.begun]
        )
        self.masks.flags.writeable = False

    def completing(self, begin, enders):
        """Return the ids that spell a tag to its end after its beginning."""
        return {
            token for token, text in enders.items() if any(tag in begin + text for tag in self.tags)
        }

    def follow(self, number, token_id):
        """Return which beginning the text ends in, `number` before this token."""
        text = self.begun[number] + self.tokenizer.bytes_of(token_id)
        ends = [at for at, begin in enumerate(self.begun) if text.endswith(begin)]
        return max(ends, key=lambda at: len(self.begun[at]))


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


def only_token(mask):
    """Return the one token that a mask allows, None where it allows more or none."""
    if numpy.count_nonzero(mask) != 1:
        return None
    place = int(mask.argmax())
    word = int(mask[place])
    return 32 * place + word.bit_length() - 1 if word.bit_count() == 1 else None


def has(mask, token_id):
    return bool(mask[token_id >> 5] >> (token_id & 31) & 1)

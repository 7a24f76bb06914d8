"""Text that runs free until the token of a tag: it may not spell that tag, or others, itself.

Who reads the text sees no tokens, so a tag that is spelled in letters ends what the tag ends.
"""

from collections.abc import Iterable, Mapping, Set

import numpy
from numpy.typing import NDArray

from glm_engine.text.tokenizer import GlmTokenizer

Words = NDArray[numpy.uint32]


class FreeText:
    """The masks of a text that only `closing`, a tag with a token of its own, ends.

    ids: those that may come in the text; the tag's own may always come. others: tags that the
    text may not spell either; all end in one letter.
    begun[n]: the n-th beginning of a tag that text may end in; the first is empty.
    masks[n]: uint32 words of what may come after it.
    """

    def __init__(
        self,
        tokenizer: GlmTokenizer,
        num_words: int,
        closing: str,
        ids: Set[int],
        others: Iterable[str] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.closing = closing.encode()
        closing_id = tokenizer.id_of(closing)
        assert closing_id is not None, f"{closing} has no token of its own"
        self.closing_id = closing_id
        self.tags = list(dict.fromkeys(tag.encode() for tag in (closing, *others)))
        self.begun = sorted({tag[:size] for tag in self.tags for size in range(len(tag))})
        enders = spelled_with(tokenizer, closing[-1], ids - {self.closing_id})
        allowed = ids | {self.closing_id}
        self.masks = numpy.stack(
            [words_of(allowed - self.completing(begin, enders), num_words) for begin in self.begun]
        )
        self.masks.flags.writeable = False

    def completing(self, begin: bytes, enders: Mapping[int, bytes]) -> set[int]:
        """Return the ids that spell a tag to its end after its beginning."""
        return {
            token for token, text in enders.items() if any(tag in begin + text for tag in self.tags)
        }

    def follow(self, number: int, token_id: int) -> int:
        """Return which beginning the text ends in, `number` before this token."""
        text = self.begun[number] + self.tokenizer.bytes_of(token_id)
        ends = [at for at, begin in enumerate(self.begun) if text.endswith(begin)]
        return max(ends, key=lambda at: len(self.begun[at]))


def spelled_with(tokenizer: GlmTokenizer, letter: str, ids: Set[int]) -> dict[int, bytes]:
    """Return the bytes of those ids that spell an ASCII letter."""
    table = tokenizer.vocabulary()
    return {
        token: tokenizer.bytes_of(token)
        for text, token in table.items()
        if letter in text and token in ids
    }


def words_of(ids: Iterable[int], num_words: int) -> Words:
    """Return a mask that holds exactly these ids."""
    bits = numpy.zeros(32 * num_words, dtype=numpy.uint8)
    bits[list(ids)] = 1
    return numpy.packbits(bits, bitorder="little").view(numpy.uint32)


def only_token(mask: Words) -> int | None:
    """Return the one token that a mask allows, None where it allows more or none."""
    if numpy.count_nonzero(mask) != 1:
        return None
    place = int(mask.argmax())
    word = int(mask[place])
    return 32 * place + word.bit_length() - 1 if word.bit_count() == 1 else None


def has(mask: Words, token_id: int) -> bool:
    return bool(mask[token_id >> 5] >> (token_id & 31) & 1)

"""The checkpoint's tokenizer as llguidance reads it."""

import json

from glm_engine.errors import BadInputError

LONGEST_TOKEN = 255


class Vocabulary:
    """Tokens of a model: what each spells, which end a text, which are tags.

    Every added token counts as special, so that no text spells it by accident.
    """

    def __init__(self, tokenizer, vocab_size, ending_ids):
        from llguidance import LLTokenizer

        self.tokenizer = tokenizer
        self.size = vocab_size
        self.num_words = -(-vocab_size // 32)
        self.ending_ids = checked_endings(tokenizer, ending_ids)
        try:
            self.tokens = LLTokenizer(
                text_with_special_tags(tokenizer),
                n_vocab=vocab_size,
                eos_token=self.ending_ids,
                slices=LLTokenizer.json_slices(),
            )
        except ValueError as error:
            raise BadInputError(f"{tokenizer.path}: no grammar can use it: {error}") from error

    def tag(self, text):
        """Return how a Lark rule names a tag: by its id, or as text where it is no token."""
        number = self.tokenizer.id_of(text)
        return json.dumps(text) if number is None else f"<[{number}]>"


def checked_endings(tokenizer, ending_ids):
    numbers = sorted(ending_ids)
    if not numbers:
        raise BadInputError(f"{tokenizer.path}: the checkpoint names no token that ends a text")
    return numbers


def text_with_special_tags(tokenizer):
    """Return tokenizer.json with every added token declared special."""
    table = json.loads(tokenizer.tokenizer.to_str())
    for token in table.get("added_tokens", []):
        token["special"] = True
    longest = max(table["model"]["vocab"], key=len)
    if len(longest) > LONGEST_TOKEN:
        raise BadInputError(
            f"{tokenizer.path}: token {longest[:20]!r} spells {len(longest)} bytes; "
            f"a grammar can use at most {LONGEST_TOKEN}"
        )
    return json.dumps(table)

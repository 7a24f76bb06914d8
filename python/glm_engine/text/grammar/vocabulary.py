"""The checkpoint's tokenizer as llguidance reads it."""

import json
from collections.abc import Collection, Iterable, Set

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.tags import (
    ARG_VALUE,
    ARG_VALUE_END,
    CALL_TAGS,
    THINK,
    THINK_END,
    TOOL_CALL,
)
from glm_engine.text.grammar.free_text import FreeText, Words, words_of
from glm_engine.text.tokenizer import GlmTokenizer, faults_as_bad_input, token_of_bytes

LONGEST_TOKEN = 255


class Vocabulary:
    """Tokens of a model: what each spells, which end a text, which are tags.

    Every added token counts as special, so that no text spells it by accident.
    """

    def __init__(
        self, tokenizer: GlmTokenizer, vocab_size: int, ending_ids: Collection[int]
    ) -> None:
        from llguidance import LLTokenizer

        self.tokenizer = tokenizer
        self.size = vocab_size
        self.num_words = -(-vocab_size // 32)
        self.ending_ids = checked_endings(tokenizer, ending_ids)
        with faults_as_bad_input(f"{tokenizer.path.name}: cannot be used with grammars"):
            self.tokens = LLTokenizer(
                text_with_special_tags(tokenizer),
                n_vocab=vocab_size,
                eos_token=self.ending_ids,
                slices=LLTokenizer.json_slices(),
            )
        self.added_ids = frozenset(tokenizer.tokenizer.get_added_tokens_decoder())
        self.thought = self.thought_text()
        self.think_id = tokenizer.id_of(THINK)
        self.newline_id = tokenizer.id_of(token_of_bytes(b"\n"))
        self.values = self.value_texts()

    def thought_text(self) -> FreeText | None:
        """Return the text of a thought: no end of text, no call and no control token is in it."""
        shunned = {*self.ending_ids, *self.tokenizer.special_ids, self.tokenizer.id_of(TOOL_CALL)}
        return self.free_text(THINK_END, shunned)

    def value_texts(self) -> dict[int, FreeText]:
        """Return the text of an argument's value, by the id of the tag that begins it."""
        text = self.free_text(ARG_VALUE_END, others=CALL_TAGS)
        begin = self.tokenizer.id_of(ARG_VALUE)
        return {} if text is None or begin is None else {begin: text}

    @property
    def can_open_thoughts(self) -> bool:
        return self.thought is not None and self.think_id is not None

    def mask_of(self, *ids: int | None) -> Words:
        return words_of({number for number in ids if number is not None}, self.num_words)

    def free_text(
        self, closing: str, shunned: Set[int | None] = frozenset(), others: Iterable[str] = ()
    ) -> FreeText | None:
        """Return the text that a tag ends and others are not in, None where it is no token."""
        if self.tokenizer.id_of(closing) is None:
            return None
        known = {number for number in self.tokenizer.vocabulary().values() if number < self.size}
        return FreeText(self.tokenizer, self.num_words, closing, known - shunned, others)

    def beginnings(self, text: bytes) -> Words:
        """Return the mask of the tokens, no added ones, that bytes can begin with."""
        letters = token_of_bytes(text[:LONGEST_TOKEN])
        found = {self.tokenizer.id_of(letters[:size]) for size in range(1, len(letters) + 1)}
        return self.mask_of(*(found - self.added_ids))

    def tag(self, text: str) -> str:
        """Return how a Lark rule names a tag: by its id, or as text where it is no token."""
        number = self.tokenizer.id_of(text)
        return json.dumps(text) if number is None else f"<[{number}]>"


def checked_endings(tokenizer: GlmTokenizer, ending_ids: Collection[int]) -> list[int]:
    numbers = sorted(ending_ids)
    if not numbers:
        raise BadInputError(f"{tokenizer.path.name}: the checkpoint has no end-of-text token")
    return numbers


def text_with_special_tags(tokenizer: GlmTokenizer) -> str:
    """Return tokenizer.json with every added token declared special."""
    table = json.loads(tokenizer.tokenizer.to_str())
    for token in table.get("added_tokens", []):
        token["special"] = True
    longest = max(table["model"]["vocab"], key=len)
    if len(longest) > LONGEST_TOKEN:
        raise BadInputError(
            f"{tokenizer.path.name}: token {longest[:20]!r} has {len(longest)} bytes; "
            f"the limit for grammars is {LONGEST_TOKEN}"
        )
    return json.dumps(table)

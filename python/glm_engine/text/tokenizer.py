"""Text to token ids and back, from the checkpoint's own tokenizer.json.

A byte-level vocabulary spells each byte as one printable character. A token gives some
bytes, and a UTF-8 decoder that keeps unfinished characters gives text.
"""

import codecs
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glm_engine.core.errors import BadInputError, GlmError, no_checkpoint
from glm_engine.core.files import read_object, read_text
from glm_engine.core.layout import StrPath

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
ERROR_OUTPUT = 2
LIBRARY_THREADS = "TOKENIZERS_PARALLELISM"


@cache
def byte_alphabet() -> dict[str, int]:
    """Return the byte behind each character of byte-level vocabularies (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = [*printable, *range(256, 256 + len(others))]
    bytes_in_order = [*printable, *others]
    return {
        chr(character): byte for character, byte in zip(characters, bytes_in_order, strict=True)
    }


@cache
def letter_of_byte() -> dict[int, str]:
    """Return the character behind each byte, the other way round."""
    return {byte: character for character, byte in byte_alphabet().items()}


def token_of_bytes(text: bytes) -> str:
    """Return bytes as a byte-level vocabulary spells them."""
    return "".join(map(letter_of_byte().__getitem__, text))


def token_bytes(token: str) -> bytes:
    """Return a token's bytes; one that is not spelled in the alphabet is plain text."""
    alphabet = byte_alphabet()
    if all(character in alphabet for character in token):
        return bytes(alphabet[character] for character in token)
    return token.encode("utf-8")


class IncrementalDetokenizer:
    """Text of one stream of token ids, as far as it is certain."""

    def __init__(
        self, bytes_of: Callable[[int], bytes], skipped_ids: frozenset[int] = frozenset()
    ) -> None:
        self.bytes_of = bytes_of
        self.skipped_ids = skipped_ids
        self.decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        """Return the text that this token completes; it may be empty."""
        if token_id in self.skipped_ids:
            return ""
        return self.decoder.decode(self.bytes_of(token_id))

    def finish(self) -> str:
        """Return what is left: U+FFFD for bytes that never became a character."""
        return self.decoder.decode(b"", final=True)


class GlmTokenizer:
    """A byte-level tokenizer as the GLM checkpoints carry it.

    It reads one text at a time, for which the library needs no threads of its own, and always
    the whole of it: `truncation` and `padding` of the file are left out, as transformers does.

    unknown: the bytes of an id that only the weights know, such as that of a padded vocabulary.
    """

    def __init__(self, model_dir: StrPath, unknown: bytes = b"") -> None:
        os.environ.setdefault(LIBRARY_THREADS, "false")
        from tokenizers import Tokenizer

        path = Path(model_dir) / TOKENIZER_FILE
        if not model_dir or not Path(model_dir).is_dir():
            raise no_checkpoint(model_dir)
        if not path.is_file():
            if not path.with_name("config.json").is_file():
                absent = f"this folder has neither config.json nor {TOKENIZER_FILE}"
                raise BadInputError(f"{model_dir}: not a checkpoint: {absent}")
            raise BadInputError(f"{path}: no such file; expected the checkpoint's tokenizer")
        text = read_text(path)
        with faults_as_bad_input(f"{path}: not a valid tokenizer"), error_output_dropped():
            self.tokenizer = Tokenizer.from_str(text)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.path = path
        self.special_ids = frozenset(
            number
            for number, token in self.tokenizer.get_added_tokens_decoder().items()
            if token.special
        )
        self.bytes_by_id: dict[int, bytes] = {}
        self.unknown = unknown
        require_byte_level(path, self.tokenizer)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of a text; added tokens such as <|user|> are recognised.

        The fast form leaves out where each token stands in the text: 0.6 of the time.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadInputError(f"the prompt is not valid Unicode: {error}") from error
        with faults_as_bad_input(f"{self.path}: cannot encode this text"):
            [found] = self.tokenizer.encode_batch_fast(
                [text], add_special_tokens=add_special_tokens
            )
        return found.ids

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids; bytes that are no UTF-8 become U+FFFD."""
        detokenizer = self.detokenizer(skip_special_tokens)
        return "".join(map(detokenizer.push, ids)) + detokenizer.finish()

    def detokenizer(self, skip_special_tokens: bool = True) -> IncrementalDetokenizer:
        """Return a detokenizer for one stream of ids."""
        skipped = self.special_ids if skip_special_tokens else frozenset()
        return IncrementalDetokenizer(self.bytes_of, skipped)

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for."""
        if token_id not in self.bytes_by_id:
            token = self.tokenizer.id_to_token(token_id)
            if token is None:
                return self.unknown
            self.bytes_by_id[token_id] = token_bytes(token)
        return self.bytes_by_id[token_id]

    def id_of(self, token: str) -> int | None:
        return self.tokenizer.token_to_id(token)

    def vocabulary(self) -> dict[str, int]:
        """Return the id of each token, added ones too, by its spelling in the file."""
        return self.tokenizer.get_vocab(with_added_tokens=True)

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size(with_added_tokens=True)


@contextmanager
def faults_as_bad_input(fault: str) -> Iterator[None]:
    """Turn any error of a library into BadInputError, a panic of its Rust, no Exception, too."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GlmError):
        raise
    except BaseException as error:
        raise BadInputError(f"{fault}: {error}") from error


@contextmanager
def error_output_dropped() -> Iterator[None]:
    """Let what is written to standard error go nowhere, as a panic's own words."""
    kept, nothing = os.dup(ERROR_OUTPUT), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, ERROR_OUTPUT)
    try:
        yield
    finally:
        os.dup2(kept, ERROR_OUTPUT)
        os.close(kept)
        os.close(nothing)


def require_byte_level(path: Path, tokenizer: "Tokenizer") -> None:
    """Refuse a tokenizer whose tokens do not spell bytes, or that has none."""
    if not any(tokenizer.get_vocab()):
        raise BadInputError(f"{path}: expected at least one token, got an empty vocabulary")
    name = type(tokenizer.decoder).__name__
    if name != "ByteLevel":
        raise BadInputError(f"{path}: expected a ByteLevel decoder, got {name}")


def tokenizer_config(model_dir: StrPath) -> dict[str, Any]:
    """Return tokenizer_config.json as a dictionary; empty where there is none."""
    path = Path(model_dir) / TOKENIZER_CONFIG_FILE
    return read_object(path) if path.is_file() else {}

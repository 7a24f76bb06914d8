"""The API key that a client sends: from a file, or from the variable GLM_API_KEY."""

from typing import TYPE_CHECKING

import click

from glm_engine.core.errors import BadInputError, variable

if TYPE_CHECKING:
    from glm_engine.load.http_client import Address

DIGEST = "sha256:"
KEY_SOURCE = f"{__name__}.source"


def address_of(url: str, key_file: str | None = None) -> "Address":
    """Return the address of a server, with the key to send to it."""
    from glm_engine.load.http_client import KEY_VARIABLE, parse_address

    if key_file is None:
        key = variable(KEY_VARIABLE)
        stated = click.get_current_context().meta.get(KEY_SOURCE, KEY_VARIABLE)
        source = stated if key else f"{KEY_VARIABLE} or use --api-key-file"
        return parse_address(url, key, source)
    return parse_address(url, read_key(key_file), key_file)


def read_key(path: str) -> str:
    """Return the one line of a file."""
    from glm_engine.core.files import read_text

    words = read_text(path).split()
    if not words:
        raise BadInputError(f"{path}: expected one API key, but the file is empty")
    if len(words) != 1:
        raise BadInputError(f"{path}: expected one API key, got {len(words)} words")
    if words[0].startswith(DIGEST):
        raise BadInputError(f"{path}: expected the API key itself, got its hash")
    return words[0]

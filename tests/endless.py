"""Capitals with so long a context that an answer lasts until the test ends it."""

from pathlib import Path

from tests.linked import CONFIG, link_capitals, stating

CONTEXT, NUM_PAGES = 65_536, 8192
NUM_TOKENS = 65_000
OPTIONS = ("--max-seq", CONTEXT, "--num-pages", NUM_PAGES)


def link_endless_model(folder: Path) -> Path:
    """Link the checkpoint into a folder, with a context whose tokens take minutes anywhere."""
    return link_capitals(folder, {CONFIG: stating(max_position_embeddings=CONTEXT)})

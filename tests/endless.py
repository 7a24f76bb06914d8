"""Capitals with so long a context that an answer lasts until the test ends it."""

import json
from pathlib import Path

from glm_engine.options import CAPITALS

CONFIG = "config.json"
CONTEXT, NUM_PAGES = 65_536, 8192
NUM_TOKENS = 65_000
OPTIONS = ("--max-seq", CONTEXT, "--num-pages", NUM_PAGES)


def link_endless_model(folder: Path) -> Path:
    """Link the checkpoint into a folder, with a context whose tokens take minutes anywhere."""
    model = Path(folder) / CAPITALS.name
    model.mkdir()
    config = json.loads((CAPITALS / CONFIG).read_bytes())
    (model / CONFIG).write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    for path in CAPITALS.iterdir():
        if path.name != CONFIG:
            (model / path.name).symlink_to(path)
    return model

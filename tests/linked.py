"""Capitals linked into a folder, with changes to its JSON files."""

import json
from pathlib import Path

from glm_engine.cli.options import CAPITALS

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer.json"


def link_capitals(folder: Path, changes: dict) -> Path:
    """Link the checkpoint; `changes` holds a function of its content for each file to write."""
    model = Path(folder) / CAPITALS.name
    model.mkdir()
    for path in CAPITALS.iterdir():
        if path.name in changes:
            changed = changes[path.name](json.loads(path.read_bytes()))
            (model / path.name).write_text(json.dumps(changed))
        else:
            (model / path.name).symlink_to(path)
    return model


def stating(**fields):
    """Return the change that states these fields of an object."""
    return lambda content: {**content, **fields}


def without_token(token):
    """Return the change of tokenizer.json that leaves an added token's id to the weights alone."""

    def changed(content):
        kept = [one for one in content["added_tokens"] if one["content"] != token]
        assert len(kept) == len(content["added_tokens"]) - 1
        return {**content, "added_tokens": kept}

    return changed

"""Capitals whose answers go on until somebody stops them."""

import json

from tests.endless import CONFIG, OPTIONS, link_endless_model

UNUSED_TOKEN = 2047
__all__ = ["OPTIONS", "link_talkative_model"]


def link_talkative_model(folder):
    """Link the checkpoint into a folder, with a long context and an end that no model writes."""
    model = link_endless_model(folder)
    path = model / CONFIG
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps({**config, "eos_token_id": UNUSED_TOKEN}))
    return model

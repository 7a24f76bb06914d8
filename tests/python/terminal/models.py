"""Capitals whose answers go on until somebody stops them."""

from tests.endless import CONTEXT, OPTIONS
from tests.linked import CONFIG, GENERATION, link_capitals, stating

UNUSED_TOKEN = 2047
__all__ = ["OPTIONS", "link_talkative_model"]


def link_talkative_model(folder):
    """Link the checkpoint into a folder, with a long context and an end that no model writes."""
    end = {"eos_token_id": UNUSED_TOKEN}
    config = stating(max_position_embeddings=CONTEXT, **end)
    return link_capitals(folder, {CONFIG: config, GENERATION: stating(**end)})

"""A checkpoint whose greedy answer is a given text: each token has one successor.

Layers add nothing; the head's row of a successor is the embedding of the token before it.
"""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from glm_engine.cli.options import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer
from tools.checkpoint.layout import checkpoint_specs
from tools.checkpoint.random_model import small_config
from tools.checkpoint.shards import split_into_shards, write_checkpoint, write_json

TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
VOCAB_SIZE, HIDDEN_SIZE = 2048, 256
END = "<|user|>"
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@cache
def tokenizer() -> GlmTokenizer:
    return GlmTokenizer(CAPITALS)


def ids_of(*texts: str) -> list[int]:
    """The tokens of some texts, each encoded alone: where one ends, a token ends."""
    encode = tokenizer().encode
    return [one for text in texts for one in encode(text, add_special_tokens=False)]


def successors_of(scripts) -> dict:
    """Return the one successor of each token."""
    found: dict = {}
    for ids in scripts:
        for token, successor in pairwise(ids):
            taken = found.setdefault(token, successor)
            assert taken == successor, f"token {token} has two successors: {taken}, {successor}"
    return found


def write_scripted_model(folder: Path, *scripts: list[int], second_best=()) -> Path:
    """Write a model that goes through each list of ids from its first, which a prompt ends in.

    second_best: lists likewise, of what comes where the first choice may not.
    """
    [end] = ids_of(END)
    config = small_config(
        fp8=False,
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN_SIZE,
        num_hidden_layers=1,
        eos_token_id=[end],
        max_position_embeddings=4096,
    )
    embedding = np.random.default_rng(3).standard_normal((VOCAB_SIZE, HIDDEN_SIZE), np.float32)
    head = np.zeros_like(embedding)
    for weight, chosen in ((1.0, scripts), (0.6, second_best)):
        for token, successor in successors_of(chosen).items():
            head[successor] += weight * embedding[token]

    def values(spec):
        if spec.name.endswith("norm.weight"):
            return np.ones(spec.shape, np.float32)
        known = {HEAD: head, EMBEDDING: embedding}
        return known.get(spec.name, np.zeros(spec.shape, np.float32))

    write_checkpoint(folder, split_into_shards(checkpoint_specs(config), 1), values)
    write_json(folder / "config.json", config)
    for name in TEXT_FILES:
        (folder / name).symlink_to(CAPITALS / name)
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": False}))
    return folder

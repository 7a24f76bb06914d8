"""A checkpoint of random weights that all three engines load."""

import json
import shutil
from pathlib import Path

from glm_engine.bench.costs import config_path
from glm_engine.core.layout import CAPITALS
from tools.bench.guided import widened
from tools.checkpoint.random_model import write_random_model

TEXTS = ("tokenizer_config.json", "chat_template.jinja")
NUM_SHARDS, SEED = 46, 0


def write(folder: Path, name: str) -> None:
    """Write the weights that a config implies, and capitals' tokenizer with as many words."""
    config = json.loads(Path(config_path(name)).read_text(encoding="utf-8"))
    write_random_model(folder, config, SEED, min(NUM_SHARDS, config["num_hidden_layers"]))
    for text in TEXTS:
        shutil.copy(CAPITALS / text, folder / text)
    widened(CAPITALS, config["vocab_size"], folder)

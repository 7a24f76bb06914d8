"""A checkpoint of random weights that all three engines load."""

import json
import random
import shutil
from pathlib import Path
from string import ascii_letters

from glm_engine.bench.costs import config_path
from glm_engine.core.layout import CAPITALS
from glm_engine.text.tokenizer import TOKENIZER_FILE
from tools.checkpoint.random_model import write_random_model

TEXTS = ("tokenizer_config.json", "chat_template.jinja")
NUM_SHARDS, SEED = 46, 0
LONGEST_WORD = 8


def write(folder: Path, name: str) -> None:
    """Write the weights that a config implies, and capitals' tokenizer with as many words."""
    config = json.loads(Path(config_path(name)).read_text(encoding="utf-8"))
    write_random_model(folder, config, SEED, min(NUM_SHARDS, config["num_hidden_layers"]))
    for text in TEXTS:
        shutil.copy(CAPITALS / text, folder / text)
    widened(CAPITALS, config["vocab_size"], folder)


def widened(source: Path, vocab_size: int, target: Path) -> Path:
    """Write the tokenizer of a folder with random words up to a vocabulary's size."""
    data = json.loads((source / TOKENIZER_FILE).read_text(encoding="utf-8"))
    words, generator = data["model"]["vocab"], random.Random(vocab_size)
    words |= {token["content"]: token["id"] for token in data["added_tokens"]}
    for number in range(len(words), vocab_size):
        word = ""
        while not word or word in words:
            word = "".join(generator.choices("Ġ" + ascii_letters, k=LONGEST_WORD))
        words[word] = number
    (target / TOKENIZER_FILE).write_text(json.dumps(data), encoding="utf-8")
    return target

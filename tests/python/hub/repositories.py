"""Models that the hub on the loopback has."""

import hashlib

from glm_engine.cli.options import CAPITALS
from tests.python.hub.hub_server import Repository
from tests.shapes import generator

UNREAD = ("README.md", "LICENSE", ".gitattributes", "consolidated.bin", "extra/model.safetensors")
NUM_SHARDS = 3
CONFIG = b'{"model_type": "glm4_moe"}'


def commit_of(text):
    return hashlib.sha1(text.encode()).hexdigest()


def capitals():
    """The checkpoint `capitals` and files that no engine reads, as a repository of the hub."""
    files = {path.name: path.read_bytes() for path in CAPITALS.iterdir() if path.is_file()}
    return Repository({**files, **dict.fromkeys(UNREAD, b"unread")}, commit_of("capitals"))


def random_model(name, shard_bytes=50_000, **wanted):
    """A repository whose shards are random bytes, never the same for two names."""
    draw = generator("hub", name, shard_bytes)
    shards = {
        f"model-{number}-of-{NUM_SHARDS}.safetensors": draw.bytes(shard_bytes + number)
        for number in range(NUM_SHARDS)
    }
    files = {"config.json": CONFIG, "tokenizer.json": draw.bytes(100), "chat_template.jinja": b""}
    return Repository({**files, **shards}, commit_of(name), **wanted)

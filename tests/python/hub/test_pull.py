"""`glm pull` through the real huggingface_hub, from a hub on the loopback."""

from glm_engine.options import CAPITALS
from tests.python.hub.hub_server import Repository
from tests.python.hub.running import assert_nothing_half_made, assert_pulled

COMMIT = "0123456789abcdef0123456789abcdef01234567"
UNREAD = ("README.md", "LICENSE", ".gitattributes", "consolidated.bin", "extra/model.safetensors")


def capitals():
    """The checkpoint `capitals` and files that no engine reads, as a repository of the hub."""
    files = {path.name: path.read_bytes() for path in CAPITALS.iterdir() if path.is_file()}
    return Repository({**files, **dict.fromkeys(UNREAD, b"unread")}, COMMIT)


def test_a_model_comes_and_runs_by_its_name(hub, nursery, name):
    hub.repositories[name] = repository = capitals()
    report = nursery.pull(name)
    found = assert_pulled(report, repository)
    assert report["fetched_bytes"] == report["total_bytes"] == hub.bytes_sent
    assert not set(found) & set(UNREAD)
    assert {"config.json", "model-00002-of-00003.safetensors", "tokenizer.json"} <= set(found)
    assert_nothing_half_made(nursery.storage(name))
    ended = nursery.run("generate", "The capital of France is", "--model", name, "--device", "cpu")
    assert (ended.code, ended.out, ended.err) == (0, " Paris.\n", "")

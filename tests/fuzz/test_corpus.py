"""Replays the fuzzing corpora: every input ends in a known status, and failures have a message."""

import pytest

from glm_engine.core.errors import Status
from tests.engine import loader
from tests.fuzz import corpus
from tests.fuzz.seeds import HARNESSES

SOUND_SEEDS = ("sound", "scalar", "empty-tensor", "emoji-name", "metadata-null", "odd-length")
KNOWN = {Status.GLM_OK, Status.GLM_INVALID_CHECKPOINT, Status.GLM_NOT_SUPPORTED}
DATA_SIZE_BYTES = 2


def expect_sound(status: int, message: str, source: str) -> None:
    assert status in KNOWN, f"{source}: status {status}, {message}"
    assert (status == Status.GLM_OK) == (message == ""), f"{source}: status {status}, {message!r}"


def whole_shard(data: bytes) -> bytes:
    """The file that the `header` harness makes of its input."""
    if len(data) < DATA_SIZE_BYTES:
        return b""
    size, text = int.from_bytes(data[:DATA_SIZE_BYTES], "little"), data[DATA_SIZE_BYTES:]
    return len(text).to_bytes(8, "little") + text + bytes(size)


@pytest.mark.parametrize(
    ("harness", "probe", "prepare"),
    [
        ("shard", "loader_parse_header", bytes),
        ("header", "loader_parse_header", whole_shard),
        ("index", "loader_parse_index", bytes),
        ("config", "loader_parse_config", bytes),
    ],
)
def test_readers(harness, probe, prepare):
    for name, data in corpus.inputs(harness).items():
        status, message = loader.parse(probe, prepare(data))
        expect_sound(status, message, name)


def test_patterns():
    for source, data in corpus.inputs("pattern").items():
        pattern, _, name = data.partition(b"\0")
        result = loader.match(pattern.decode("latin-1"), name.decode("latin-1"))
        assert result != "", source


@pytest.mark.parametrize(
    ("harness", "name", "words"),
    [
        ("header", "deep", "nested deeper than 64 levels"),
        ("header", "overlap", "overlap"),
        ("header", "backwards", "negative or reversed"),
        ("header", "past-the-end", "past the end"),
        ("header", "gap", "do not belong to any tensor"),
        ("header", "tail", "do not belong to any tensor"),
        ("header", "unaligned", "not aligned"),
        ("header", "escape-name", "\\x1b[2J: the tensor's name contains an unprintable character"),
        ("header", "metadata-number", "__metadata__: expected an object with only string values"),
        ("header", "metadata-list", "__metadata__: expected an object with only string values"),
        ("header", "dtype", 'dtype "F7" is unknown'),
        ("header", "duplicate", "appears twice"),
        ("header", "no-json", "invalid JSON"),
        ("shard", "too-long", "bytes follow the length field"),
        ("shard", "truncated", "past the end"),
        ("shard", "short", "expected at least 8 for the header length"),
        ("index", "parent", "to a file name without a folder"),
        ("index", "escape-file", "expected weight_map to map a to a file name"),
        ("index", "escape-name", "expected weight_map to map \\x1b[2J"),
        ("index", "no-map", "weight_map"),
    ],
)
def test_messages_of_seeds(harness, name, words):
    data = corpus.inputs(harness)[name]
    probe = "loader_parse_index" if harness == "index" else "loader_parse_header"
    status, message = loader.parse(probe, whole_shard(data) if harness == "header" else data)
    assert status == Status.GLM_INVALID_CHECKPOINT
    assert words in message


@pytest.mark.parametrize("harness", HARNESSES)
def test_packing_what_was_unpacked_gives_the_same_archive(harness, tmp_path, monkeypatch):
    corpus.unpack(harness, tmp_path / "files")
    committed = corpus.archive(harness).read_bytes()
    monkeypatch.setattr(corpus, "FOLDER", tmp_path)
    corpus.pack(harness, tmp_path / "files")
    packed = corpus.archive(harness).read_bytes()
    assert corpus.inputs(harness).keys() > dict(HARNESSES[harness]()).keys()
    assert packed == committed


@pytest.mark.parametrize("name", SOUND_SEEDS)
def test_sound_seeds(name):
    data = whole_shard(corpus.inputs("header")[name])
    assert loader.parse("loader_parse_header", data) == (Status.GLM_OK, "")

"""Replays the fuzzing corpus: every input ends in a known status, and failures have a message."""

from pathlib import Path

import pytest

from glm_engine.errors import Status
from tests.engine import loader
from tests.fuzz import seeds

CORPUS = Path(__file__).resolve().parent / "corpus"
SOUND_SEEDS = ("sound", "scalar", "empty-tensor", "emoji-name", "metadata-null", "odd-length")
KNOWN = {Status.GLM_OK, Status.GLM_INVALID_CHECKPOINT, Status.GLM_NOT_SUPPORTED}
DATA_SIZE_BYTES = 2


def inputs(harness: str) -> list[Path]:
    return sorted((CORPUS / harness).iterdir())


def expect_sound(status: int, message: str, source: Path) -> None:
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
    sources = inputs(harness)
    assert sources
    for source in sources:
        status, message = loader.parse(probe, prepare(source.read_bytes()))
        expect_sound(status, message, source)


def test_patterns():
    for source in inputs("pattern"):
        pattern, _, name = source.read_bytes().partition(b"\0")
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
    data = (CORPUS / harness / f"{name}.bin").read_bytes()
    probe = "loader_parse_index" if harness == "index" else "loader_parse_header"
    status, message = loader.parse(probe, whole_shard(data) if harness == "header" else data)
    assert status == Status.GLM_INVALID_CHECKPOINT
    assert words in message


@pytest.mark.parametrize("harness", seeds.HARNESSES)
def test_seeds_are_the_files(harness):
    for name, data in seeds.HARNESSES[harness]():
        assert (CORPUS / harness / f"{name}.bin").read_bytes() == data


@pytest.mark.parametrize("name", SOUND_SEEDS)
def test_sound_seeds(name):
    data = whole_shard((CORPUS / "header" / f"{name}.bin").read_bytes())
    assert loader.parse("loader_parse_header", data) == (Status.GLM_OK, "")

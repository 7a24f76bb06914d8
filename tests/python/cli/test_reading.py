"""Files that commands read: what cannot be read is one line and exit code 2."""

import json
import os
import shutil

import pytest

from glm_engine.cli import command_line
from glm_engine.cli.options import CAPITALS
from glm_engine.core import files
from glm_engine.core.errors import BadInputError

NOBODY = 65534
LONG_NAME = "n" * 400
READERS = {
    "tokenizer": ["generate", "x", "--model", "{folder}"],
    "facts": ["evaluate", "--facts", "{path}"],
    "report of bench": ["bench", "--show", "{path}"],
    "report of load": ["load", "--show", "{path}"],
    "prompts": ["load", "http://127.0.0.1:9", "--prompts", "file:{path}"],
    "keys": ["serve", "--api-key-file", "{path}", "--port", "0"],
    "template": ["generate", "x", "--chat", "--model", "{model}"],
}
FILE_NAMES = {"tokenizer": "tokenizer.json", "template": "model/chat_template.jinja"}
CONTENTS = {
    "not UTF-8": b"caf\xe9\n",
    "deep JSON": b"[" * 200_000,
    "long number": b"[" + b"9" * 5000 + b"]",
    "no JSON": b"{",
    "a number": b"7",
    "an empty object": b"{}",
    "zero bytes": b"\0" * 100,
}
ANY_TEXT = ("keys", "template")
FAULTS = [
    (reader, content)
    for reader in READERS
    for content in CONTENTS
    if content == "not UTF-8" or reader not in ANY_TEXT
]


@pytest.fixture
def model(tmp_path):
    """A folder with the tokenizer of capitals, and nothing else."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(CAPITALS / "tokenizer.json", folder)
    return folder


def refusal_of(reader, path, model, capsys):
    """Run the command that reads such a file; return the one line that it says."""
    names = {"path": path, "folder": path.parent, "model": model}
    assert command_line.main([one.format(**names) for one in READERS[reader]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("glm: ")
    return captured.err


@pytest.mark.parametrize(("reader", "content"), FAULTS)
def test_content_that_is_none_of_the_kind(reader, content, tmp_path, model, capsys):
    path = tmp_path / FILE_NAMES.get(reader, "file")
    path.write_bytes(CONTENTS[content])
    line = refusal_of(reader, path, model, capsys)
    assert str(path) in line
    assert len(line) < len(str(path)) + 300


@pytest.mark.parametrize("reader", [name for name in READERS if name not in FILE_NAMES])
def test_a_folder_is_no_file(reader, tmp_path, model, capsys):
    assert "Is a directory" in refusal_of(reader, tmp_path, model, capsys)


@pytest.mark.parametrize("reader", READERS)
def test_a_name_that_is_too_long(reader, tmp_path, capsys):
    path = tmp_path / LONG_NAME / "file"
    assert "File name too long" in refusal_of(reader, path, path, capsys)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_may_not_be_read(reader, tmp_path, model, capsys, unprivileged):
    path = tmp_path / FILE_NAMES.get(reader, "file")
    path.write_text("text")
    unprivileged(tmp_path)
    assert "Permission denied" in refusal_of(reader, path, model, capsys)


@pytest.fixture
def unprivileged():
    """Take away the right to look into a folder, from root by being nobody."""
    closed = []

    def close(folder):
        closed.append(folder)
        folder.chmod(0)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)

    yield close
    if os.getuid() == 0:
        os.seteuid(0)
    for folder in closed:
        folder.chmod(0o700)


def test_a_file_without_end_is_not_kept(monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", files.PIECE_BYTES)
    with pytest.raises(BadInputError, match="/dev/zero: larger than 1048576 bytes"):
        files.read_bytes("/dev/zero")


def test_a_pipe_is_read_to_its_end():
    reading, writing = os.pipe()
    os.write(writing, b'{"a": 1}')
    os.close(writing)
    assert files.read_object(f"/dev/fd/{reading}") == json.loads('{"a": 1}')
    os.close(reading)

"""What `--model` takes: a path that exists, else the name of a model that was pulled."""

import json

import pytest

from glm_engine.cli import command_line
from glm_engine.commands.serve import name_of
from glm_engine.core.errors import BadInputError
from glm_engine.hub.names import NAME, find_checkpoint, name_of_folder
from tests.python.hub.repositories import commit_of

MODEL = "zai-org/GLM-4.5-Air-FP8"
ABSENT = "zai-org/GLM-that-nobody-made"
COMMIT = commit_of("names")
TAKES_A_MODEL = {
    "smoke": ["--model"],
    "generate": ["x", "--model"],
    "evaluate": ["--model"],
    "inspect": [],
    "plan": [],
    "verify": [],
    "bench": ["--model"],
    "serve": ["--port", "0", "--model"],
    "load": ["--engine", "--model"],
    "chat": ["--model"],
    "batch": ["requests.jsonl", "results.jsonl", "--model"],
}
A_REQUEST = {
    "custom_id": "one",
    "method": "POST",
    "url": "/v1/completions",
    "body": {"prompt": "x", "max_tokens": 1},
}


def with_files(arguments, folder):
    """The arguments with the files that they name in a folder; that of requests has one."""
    (folder / "requests.jsonl").write_text(json.dumps(A_REQUEST) + "\n")
    return [str(folder / one) if one.endswith(".jsonl") else one for one in arguments]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GLM_MODEL", raising=False)
    return tmp_path / "hub"


@pytest.fixture
def storage(cache):
    """A model as a pull leaves it: one file of 3 bytes, and the record."""
    storage = cache / "models--zai-org--GLM-4.5-Air-FP8"
    folder = storage / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"abc")
    record = {"revision": "main", "commit": COMMIT, "files": [{"path": "config.json", "size": 3}]}
    (storage / "glm.json").write_text(json.dumps(record))
    return storage


@pytest.mark.parametrize(("command", "arguments"), TAKES_A_MODEL.items())
@pytest.mark.parametrize("is_offline", [True, False])
def test_every_command_says_how_to_download_a_model(
    cache, tmp_path, monkeypatch, command, arguments, is_offline, capsys
):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", is_offline)
    options = [] if is_offline else ["--no-download"]
    stated = [command, *with_files(arguments, tmp_path), ABSENT, *options]
    assert command_line.main(stated) == 2
    reason = (
        f"HF_HUB_OFFLINE is set; unset it and run `glm pull {ABSENT}`."
        if is_offline
        else f"--no-download is set; run `glm pull {ABSENT}` first."
    )
    line = f"{ABSENT}: not a folder, and not in the cache {cache}. {reason}"
    assert capsys.readouterr() == ("", f"glm: {line}\n")


def test_no_command_that_takes_a_model_is_left_out():
    names = {name: {one.name for one in params(name)} for name in command_line.COMMANDS}
    taking = {name for name in names if "model_dir" in names[name]}
    assert taking == set(TAKES_A_MODEL)
    assert taking == {name for name in names if "no_download" in names[name]}


def params(name):
    return command_line.commands.get_command(None, name).params


def test_the_variable_takes_a_name(cache, monkeypatch, capsys):
    assert not cache.exists()
    monkeypatch.setenv("GLM_MODEL", ABSENT)
    assert command_line.main(["plan", "--no-download"]) == 2
    assert f"`glm pull {ABSENT}`" in capsys.readouterr().err


def test_a_plan_of_an_unknown_name_lists_the_known_ones(cache, capsys):
    assert not cache.exists()
    assert command_line.main(["plan", "glm-4.6-fp8"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("glm: glm-4.6-fp8: not a folder or a known name; expected a checkpoint")
    assert line.endswith("or one of capitals, glm-4.5-air-fp8, glm-4.7-fp8\n")


@pytest.mark.parametrize("command", ["serve", "plan", "chat", "pull"])
def test_the_address_of_another_hub_is_told_the_variable(cache, command, capsys):
    assert not cache.exists()
    assert command_line.main([command, "http://127.0.0.1:9/zai-org/X"]) == 2
    line = capsys.readouterr().err
    assert line.endswith("set HF_ENDPOINT=http://127.0.0.1:9 and give zai-org/X as the model.\n")


def test_a_name_is_the_folder_that_was_pulled(storage):
    assert find_checkpoint(MODEL) == str(storage / "snapshots" / COMMIT)


def test_a_folder_wins(storage, tmp_path):
    assert storage.exists()
    (tmp_path / MODEL).mkdir(parents=True)
    assert find_checkpoint(MODEL) == MODEL
    assert find_checkpoint(str(tmp_path)) == str(tmp_path)


def test_what_is_neither_is_left_to_who_opens_it(cache):
    assert not cache.exists()
    for text in ("absent", "./a/b", "/a/b", "a/b/c", "../b", ""):
        assert find_checkpoint(text) == text


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(b"")])
def test_files_that_went_are_missed(storage, damage):
    damage(storage / "snapshots" / COMMIT / "config.json")
    with pytest.raises(BadInputError, match=rf"config\.json in .* is missing.*`glm pull {MODEL}`"):
        find_checkpoint(MODEL)


@pytest.mark.parametrize(
    "record",
    [
        "",
        "[]",
        "{}",
        '{"files": 1}',
        '{"commit": "a", "files": []}',
        '{"revision": "main", "commit": 1, "files": []}',
        '{"revision": "main", "commit": "a", "files": [{"path": 5, "size": 1}]}',
    ],
)
def test_a_record_that_is_none(storage, record):
    (storage / "glm.json").write_text(record)
    with pytest.raises(BadInputError, match=r"glm\.json: "):
        find_checkpoint(MODEL)


@pytest.mark.parametrize("name", [MODEL, "a/b", "A_1/b.c-d_e", "0/1", f"a/{'b' * 94}"])
def test_names(name):
    assert NAME.fullmatch(name)


@pytest.mark.parametrize(
    "name",
    ["a", "a/", "/b", "a/b/c", ".a/b", "a/b.", "a/-b", "a--b/c", "a/b..c", f"a/{'b' * 95}", "ä/b"],
)
def test_what_is_no_name(name):
    assert not NAME.fullmatch(name)


def test_a_server_calls_a_model_by_its_name(storage, tmp_path):
    folder = storage / "snapshots" / COMMIT
    assert name_of(str(folder)) == name_of_folder(folder) == MODEL
    assert name_of(str(tmp_path)) == tmp_path.name
    assert name_of("glm-4.5-air-fp8") == "glm-4.5-air-fp8"
    assert name_of_folder("/") == ""

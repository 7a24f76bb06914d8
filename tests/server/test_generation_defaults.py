"""What generation_config.json sets is applied, or named where a command starts."""

import json
from pathlib import Path

import pytest

from glm_engine.core.layout import CAPITALS
from tests.python.commands.running import CPU, QUESTION, glm

UNAPPLIED = {"max_new_tokens": 3, "suppress_tokens": [5], "num_beams": 4, "max_time": None}
NAMED = "ignoring unsupported fields: max_new_tokens, num_beams, suppress_tokens"


def model_with(folder: Path, **generation) -> Path:
    """The trained model beside another generation_config.json."""
    folder.mkdir()
    for path in CAPITALS.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    return folder


def texts_of(server, **fields) -> set[str]:
    """The answers to one question, drawn with six seeds."""
    asked = {"prompt": QUESTION, "max_tokens": 8, "ignore_eos": True, **fields}
    answers = [server.http.post("/v1/completions", json={**asked, "seed": i}) for i in range(6)]
    return {answer.json()["choices"][0]["text"] for answer in answers}


@pytest.fixture
def server(start_server, tmp_path):
    model = model_with(tmp_path / "model", temperature=2.0, min_p=1.0, **UNAPPLIED)
    return start_server("--model", model)


def test_min_p_is_the_default_of_requests(server) -> None:
    greedy = texts_of(server, temperature=0)
    assert len(greedy) == 1
    assert texts_of(server) == greedy
    assert len(texts_of(server, min_p=0)) > 1
    assert server.log().count(NAMED) == 1


def test_generate_and_chat_name_what_they_do_not_apply(tmp_path) -> None:
    model = model_with(tmp_path / "model", do_sample=False, **UNAPPLIED)
    named = f"glm: {model / 'generation_config.json'}: {NAMED}"
    generated = glm("generate", QUESTION, *CPU, "--model", model, "--max-tokens", 4)
    assert generated.returncode == 0
    assert generated.stderr.splitlines().count(named) == 1
    talked = glm("chat", *CPU, "--model", model, stdin="What is the capital of France?\n")
    assert talked.returncode == 0
    assert talked.stderr.splitlines().count(named) == 1


def test_chat_takes_min_p_for_its_default(tmp_path) -> None:
    model = model_with(tmp_path / "model", temperature=2.0, min_p=1.0)
    question = "What is the capital of France?\n"
    answers = {glm("chat", *CPU, "--model", model, stdin=question).stdout for _ in range(3)}
    assert answers == {"Paris.\n"}

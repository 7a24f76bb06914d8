"""Logits of builds beside each other: of the same one, of others, and what is no build."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench.bits import difference, main
from tools.bench.processes import ROOT, WorkerError

SMALL = ["--device", "cpu", "--layers", "1", "--prompt", "1", "--prompt", "3"]
OTHER_ENGINE = """
import numpy as np
from types import SimpleNamespace

VOCABULARY = 37888
EngineOptions = SimpleNamespace


class Engine:
    vocab_size = VOCABULARY

    def __init__(self, options):
        self.value = {value}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def prefill(self, tokens, all_positions):
        shape = (len(tokens), VOCABULARY)
        return SimpleNamespace(close=lambda: None), np.full(shape, self.value, np.float32)

    def decode_step(self, state, token):
        return np.full(VOCABULARY, self.value, np.float32)
"""


def checkout(folder: Path, value: str) -> Path:
    """A checkout whose engine says `value` for every logit."""
    package = folder / "python" / "glm_engine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "errors.py").write_text("class GlmError(Exception):\n    pass\n")
    (package / "engine.py").write_text(OTHER_ENGINE.replace("{value}", value))
    (folder / "build").mkdir()
    (folder / "build" / "engine.so").touch()
    return folder


def test_a_build_has_its_own_bits():
    result = CliRunner().invoke(main, [str(ROOT), *SMALL])
    assert result.exit_code == 0, result.output
    cells = [line.split() for line in result.output.splitlines()]
    parts = [f"{length} {part}" for length in (1, 3) for part in ("prompt", "decode")]
    assert [" ".join(cell[1:4]) for cell in cells] == [
        f"{weights} {part}" for weights in ("fp8", "bf16") for part in parts
    ]
    assert {cell[4] for cell in cells} == {"equal"}


def test_another_build_is_asked_through_its_own_python(tmp_path):
    others = [
        str(checkout(tmp_path / name, value))
        for name, value in [("first", "1.0"), ("second", "2.0"), ("third", "1.0")]
    ]
    result = CliRunner().invoke(main, [*others, *SMALL])
    assert result.exit_code == 1, result.output
    lines = result.output.splitlines()
    assert len(lines) == 24
    assert all(" differ, " in line for line in lines)
    named = {line.split()[0] for line in lines if line.endswith(", as first")}
    assert named == {"third"}
    assert sum(", as " in line for line in lines) == 8


def test_logits_that_are_no_numbers_are_refused(tmp_path):
    other = checkout(tmp_path / "earlier", "float('nan')")
    expect_one_line(main, [str(other), *SMALL], "logits that are no numbers: 1 prompt")


def test_a_difference_counts_values_whose_bits_are_not_the_same():
    ours = np.array([[0.0, 3.0, 4.0]], np.float32)
    assert str(difference(ours, ours.copy())) == "equal (3)"
    assert str(difference(ours, np.array([[-0.0, 3.0, 4.0]], np.float32))) == "1 of 3 differ, 0"
    assert str(difference(ours, ours + np.float32(0.5))) == "3 of 3 differ, 0.17"
    with pytest.raises(WorkerError, match=r"expected logits of shape \(1, 3\), got \(3, 1\)"):
        difference(ours, ours.T)


@pytest.mark.parametrize(
    ("asked", "said"),
    [([], "CHECKOUTS"), ([".", "--layers", "0"], "--layers"), ([".", "--prompt", "0"], "--prompt")],
)
def test_arguments_that_are_none_are_refused(asked, said):
    expect_refused(main, asked, said)


def test_a_folder_without_a_build_is_one_line(tmp_path):
    expect_one_line(main, [str(tmp_path)], f"{tmp_path}: expected a checkout with its build")

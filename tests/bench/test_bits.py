"""Logits of builds beside each other: of the same one, of others, and what is no build."""

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from glm_engine.errors import BadInputError
from glm_engine.libraries import VARIABLE
from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench import bits
from tools.bench.bits import compare, difference, expect_own_libraries, main, narrow_config
from tools.bench.processes import ROOT

SMALL = ["--device", "cpu", "--layers", "1", "--prompt", "1", "--prompt", "3"]
PARTS = {"1 prompt": 37_888, "1 decode": 303_104, "3 prompt": 113_664, "3 decode": 303_104}
OTHER_ENGINE = """
import mmap
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np

VOCABULARY = 37888
EngineOptions = SimpleNamespace
LIBRARY = Path(__file__).parents[2] / "build" / "engine.so"


class Engine:
    vocab_size = VOCABULARY

    def __init__(self, options):
        if "GLM_ENGINE_LIBRARY" in os.environ:
            raise ValueError("another build's library")
        with LIBRARY.open("rb") as file:
            self.mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self.value = VALUE

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


def checkout(folder: Path, value: str, engine: str = OTHER_ENGINE) -> Path:
    """A checkout whose engine says `value` for every logit."""
    package = folder / "python" / "glm_engine"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(engine.replace("VALUE", value))
    (folder / "build").mkdir()
    (folder / "build" / "engine.so").write_text("a library")
    return folder


def test_a_build_has_its_own_bits():
    result = CliRunner().invoke(main, [str(ROOT), *SMALL])
    assert result.exit_code == 0, result.output
    cells = [line.split(maxsplit=4) for line in result.output.splitlines()]
    assert [[weights, f"{length} {part}", found] for _, weights, length, part, found in cells] == [
        [weights, part, f"equal ({count:,})"]
        for weights in ("fp8", "bf16")
        for part, count in PARTS.items()
    ]


def test_another_build_is_asked_through_its_own_python(tmp_path, monkeypatch):
    values = {"first": "1.0", "second": "2.0", "third": "1.0"}
    others = [str(checkout(tmp_path / name, value)) for name, value in values.items()]
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv(VARIABLE, str(ROOT / "build" / "engine.so"))
    result = CliRunner().invoke(main, [*others, others[0], *SMALL])
    assert result.exit_code == 1, result.output
    lines = result.output.splitlines()
    assert len(lines) == 2 * len(PARTS) * len(values)
    assert all(" differ, " in line for line in lines)
    named = {line.split()[0] for line in lines if line.endswith(f", as {others[0]}")}
    assert named == {others[2]}
    assert sum(", as " in line for line in lines) == 2 * len(PARTS)


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')"])
def test_logits_that_are_no_numbers_are_refused(tmp_path, value):
    other = checkout(tmp_path / "earlier", value)
    expect_one_line(main, [str(other), *SMALL], "logits that are not numbers: 1 prompt")


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("EngineOptions = int\nEngine = None", "TypeError"),
        ("import os\nos._exit(7)", "ended with status 7"),
        (OTHER_ENGINE.replace("LIBRARY.open", "Path('/proc/self/status').open"), "ValueError"),
    ],
)
def test_a_build_that_cannot_be_asked_is_named(tmp_path, engine, said):
    other = checkout(tmp_path / "broken", "1.0", engine)
    expect_one_line(main, [str(other), *SMALL], f"{other}: ")
    expect_one_line(main, [str(other), *SMALL], said)


@pytest.mark.parametrize("loaded", [[], ["/elsewhere/build/engine.so"]])
def test_a_build_that_computes_with_libraries_of_another_is_refused(tmp_path, loaded):
    own = [str(tmp_path / "build" / "engine.so"), str(tmp_path / "build" / "libglm_cpu.so")]
    expect_own_libraries(tmp_path, own)
    with pytest.raises(BadInputError, match=f"expected the libraries in {tmp_path}/build"):
        expect_own_libraries(tmp_path, [*loaded, *own] if loaded else [])


@pytest.mark.parametrize("part", PARTS)
def test_one_part_that_differs_is_enough(part, monkeypatch, capsys):
    rows = dict.fromkeys(PARTS, np.ones((1, 4), np.float32))
    answers = {ROOT: rows, Path("/other"): rows | {part: np.zeros((1, 4), np.float32)}}
    monkeypatch.setattr(bits, "write_model", lambda *_: None)
    monkeypatch.setattr(bits, "logits_by", lambda asked, *_: answers[asked])
    assert not compare("fp8", [Path("/other")], 1, {"options": {}})
    assert compare("fp8", [ROOT], 1, {"options": {}})
    said = [line for line in capsys.readouterr().out.splitlines() if "differ" in line]
    assert len(said) == 1
    assert part in said[0]


@pytest.mark.parametrize("differs", bits.WEIGHTS)
def test_the_status_is_of_all_weights(differs, monkeypatch):
    monkeypatch.setattr(bits, "compare", lambda weights, *_: weights != differs)
    assert CliRunner().invoke(main, [str(ROOT)]).exit_code == 1


def test_a_difference_counts_values_whose_bits_are_not_the_same():
    ours = np.array([[0.0, 3.0, 4.0]], np.float32)
    assert str(difference(ours, ours.copy())) == "equal (3)"
    assert str(difference(ours, np.array([[-0.0, 3.0, 4.0]], np.float32))) == "1 of 3 differ, 0"
    assert str(difference(ours, ours + np.float32(0.5))) == "3 of 3 differ, 0.17"
    with pytest.raises(BadInputError, match=r"expected logits of shape \(1, 3\), got \(3, 1\)"):
        difference(ours, ours.T)


def test_the_model_is_a_quarter_as_wide():
    quantised, plain = (narrow_config(weights, 4) for weights in bits.WEIGHTS)
    assert [quantised[key] for key in ("hidden_size", "num_hidden_layers")] == [1280, 4]
    assert [quantised[key] for key in ("n_routed_experts", "head_dim")] == [160, 128]
    assert quantised.keys() - plain.keys() == {"quantization_config"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [([], "CHECKOUTS"), ([".", "--layers", "0"], "--layers"), ([".", "--prompt", "0"], "--prompt")],
)
def test_arguments_that_are_none_are_refused(asked, said):
    expect_refused(main, asked, said)


@pytest.mark.parametrize("missing", ["python/glm_engine/__init__.py", "build/engine.so"])
def test_a_folder_without_a_build_is_one_line(tmp_path, missing):
    other = checkout(tmp_path / "earlier", "1.0")
    os.remove(other / missing)
    expect_one_line(main, [str(other)], f"{other}: expected a built checkout, found no")


def test_a_disk_that_takes_no_checkpoint_is_trouble_and_no_difference(monkeypatch):
    def refuse(*_):
        raise bits.CheckpointWriteError("no room")

    monkeypatch.setattr(bits, "write_repeated_checkpoint", refuse)
    expect_one_line(main, [str(ROOT)], "no room")


def test_an_interrupt_has_a_status_of_its_own(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(bits, "compare", interrupt)
    assert CliRunner().invoke(main, [str(ROOT)]).exit_code == 130

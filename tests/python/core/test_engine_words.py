"""Messages of the engine in the words of the command line."""

import re

import pytest

from glm_engine.cli import command_line
from glm_engine.core import abi, engine_words, layout, libraries
from glm_engine.core.engine_words import for_users, in_options
from glm_engine.core.errors import BadInputError, EngineError, EngineLibraryError, Status
from tests.python.cli.test_option_sources import COMMANDS

NO_OPTION = {"model_dir", "library_dir", "device", "graphs", "synthetic", "kv_events"}
NO_OPTION |= {"temperature", "seed"}
HIDDEN = {
    "struct_size",
    "max_draft_tokens",
    "max_logit_rows",
    "progress",
    "progress_context",
    "ranks_per_device",
}
CANNOT = "cannot open the library for device {}: it: gone; in a source checkout, build it with `x`"


def test_every_option_of_the_engine_has_its_name_on_the_command_line():
    structs = ("engine_options", "engine_sampling")
    fields = {name for struct in structs for name, *_ in abi.STRUCTS[struct]}
    assert fields - NO_OPTION - HIDDEN == set(engine_words.OPTIONS)
    params = [param for one in COMMANDS.values() for param in one.params]
    flags = {flag for param in params for flag in param.opts}
    assert set(engine_words.OPTIONS.values()) <= flags


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("max_seq 9 exceeds the model's", "--max-seq 9 exceeds the model's"),
        (
            "all 4 sequence slots (max_batch) are in use",
            "all 4 sequence slots (--max-batch) are in use",
        ),
        ("world_size is 3; use device cpu", "--world-size is 3; use --device cpu"),
        ("no kernels: use device futhark", "no kernels: use --device futhark"),
        ("num_pages 8 with max_seq 128 fits.", "--num-pages 8 with --max-seq 128 fits."),
        ("memory_limit_bytes is 1 GB", "--memory-limit is 1 GB"),
        ("device cpu: step_budget_ms is -2", "device cpu: --step-budget is -2"),
        ("/a/max_seq/b: no such folder", "/a/max_seq/b: no such folder"),
        ("--max_seq and max_seq_from stay", "--max_seq and max_seq_from stay"),
    ],
)
def test_names_of_the_engine_become_options(message, expected):
    assert in_options(message) == expected


LACK = "/m: speculate is mtp: model.safetensors lacks model.layers.4.eh_proj.weight; use speculate"


class RefusingEngine:
    def __init__(self, options):
        assert (options.speculate, options.max_draft_tokens) == ("mtp", 1)
        raise EngineError("init_engine_with", Status.GLM_INVALID_ARGUMENT, f"{LACK} lookup:N")


@pytest.mark.parametrize(
    "words", [("generate", "x"), ("serve", "--port", "0"), ("bench",), ("load", "--engine")]
)
def test_a_model_without_the_prediction_layer_is_one_line_about_an_option(
    words, monkeypatch, capsys
):
    monkeypatch.setattr("glm_engine.core.loading.Engine", RefusingEngine)
    assert command_line.main([*words, "--device", "cpu", "--speculate", "mtp"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"glm: {in_options(LACK)} lookup:N\n"
    assert captured.err.startswith("glm: /m: --speculate is mtp: ")
    assert captured.err.endswith("; use --speculate lookup:N\n")


def test_only_errors_of_the_engine_are_changed():
    status = Status.GLM_INVALID_ARGUMENT
    assert for_users(EngineError("plan", status, "max_seq is -1")) == "--max-seq is -1"
    assert for_users(BadInputError("max_seq is -1")) == "max_seq is -1"


def test_a_checkout_keeps_the_advice_to_build(monkeypatch):
    monkeypatch.setattr(layout, "IS_WHEEL", False)
    assert in_options(CANNOT.format("cuda")) == CANNOT.format("cuda")


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        ("cuda", "no CUDA support"),
        ("futhark", "no CUDA support"),
        ("cpu", "This installation is incomplete; install the"),
    ],
)
def test_a_wheel_never_speaks_of_a_checkout(kind, advice, monkeypatch):
    monkeypatch.setattr(layout, "IS_WHEEL", True)
    monkeypatch.setattr(libraries, "find_backend_library", lambda _kind: None)
    line = in_options(f"{CANNOT.format(kind)}. To plan for GPUs, say so.")
    assert line.startswith(f"cannot open the library for device {kind}: it: gone. This ")
    assert advice in line
    assert line.endswith(". To plan for GPUs, say so.")
    assert not re.search("checkout|`x`", line)


def test_a_wheel_without_its_engine_says_to_install_it_again(monkeypatch, tmp_path):
    monkeypatch.delenv(libraries.VARIABLE, raising=False)
    monkeypatch.setattr(layout, "IS_WHEEL", True)
    monkeypatch.setattr(layout, "LIBRARIES", tmp_path)
    with pytest.raises(EngineLibraryError, match="; this installation is incomplete") as caught:
        libraries.find_engine_library()
    assert "scons" not in str(caught.value)

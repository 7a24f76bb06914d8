"""Numbers of the command line: each has bounds at both ends, which its refusal names."""

import click
import pytest

from glm_engine.cli import command_line
from glm_engine.cli.option_types import NumberList, SizeOfOne
from glm_engine.cli.options import (
    ENGINE,
    ByteSize,
    FreeShare,
    MemoryLimit,
    PositiveSize,
    Whole,
    WorldSize,
    make_engine_options,
    make_engine_values,
)
from tests.python.cli.test_option_sources import COMMANDS, ROOT_CONTEXT

ARGUMENTS = {"generate": ["x"]}
LONG = ("9" * 400, "9" * 5000, f"-{'9' * 400}", "²")


def numbers_of_commands():
    """Each command with each of its options that takes whole numbers."""
    context = click.Context(command_line.commands)
    for name in command_line.COMMANDS:
        for option in command_line.commands.get_command(context, name).params:
            if isinstance(option, click.Option) and isinstance(
                option.type, (click.types.IntParamType, ByteSize, NumberList)
            ):
                yield pytest.param(name, option, id=f"{name} {option.opts[0]}")


@pytest.mark.parametrize(("name", "option"), list(numbers_of_commands()))
@pytest.mark.parametrize("text", LONG, ids=["400", "5000", "negative", "superscript"])
def test_a_number_out_of_bounds_is_one_short_line(name, option, text, capsys):
    assert isinstance(option.type, (Whole, ByteSize, NumberList))
    assert command_line.main([name, *ARGUMENTS.get(name, []), f"{option.opts[0]}={text}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("glm: ")
    assert captured.err.count("\n") == 1
    assert option.opts[0] in captured.err
    assert len(captured.err) < 200


@pytest.mark.parametrize("text", ["9" * 400, "-2", "3000000000"])
def test_the_bounds_are_named(text, capsys):
    assert command_line.main(["generate", "x", "--top-k", text]) == 2
    line = capsys.readouterr().err
    assert "expected 0 to 2147483647, got" in line


@pytest.mark.parametrize("text", ["9" * 400, "9e9", "9000000TiB", "9223372036854775808"])
def test_sizes_beyond_what_64_bits_hold_are_refused(text, capsys):
    assert command_line.main(["plan", "--memory-limit", text]) == 2
    assert "--memory-limit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ByteSize, "141GB", 141_000_000_000),
        (ByteSize, "140GiB", 150_323_855_360),
        (ByteSize, "1.5 kib", 1536),
        (ByteSize, "9007199254740993", 9007199254740993),
        (ByteSize, "0", 0),
        (PositiveSize, "141GB", 141_000_000_000),
        (SizeOfOne, "141GB", 141_000_000_000),
        (MemoryLimit, "80g", 80_000_000_000),
        (MemoryLimit, "0.9", FreeShare(90)),
        (MemoryLimit, ".07", FreeShare(7)),
        (MemoryLimit, "1.0", FreeShare(100)),
        (MemoryLimit, "1048576", 1048576),
    ],
)
def test_sizes_and_shares(kind, text, value):
    assert kind().convert(text, None, None) == value


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("--device-memory", "0.9", "less than a byte; expected a size, e.g. 512MB or 80GiB"),
        ("--device-memory", "0", "expected a size, e.g."),
        ("--device-memory", "141", "'141' means 141 bytes; did you mean 141GB?"),
        ("--memory-limit", "80", "'80' means 80 bytes; did you mean 80GB?"),
        ("--device-memory", "4x141GB", "of one GPU (141GB) and --world-size 4\n"),
        ("--device-memory", "8 x 80 GiB", "of one GPU (80 GiB) and --world-size 8\n"),
        ("--device-memory", "4x", "expected a size, e.g. 512MB or 80GiB, got"),
        ("--memory-limit", "0", "expected a size, e.g."),
        ("--memory-limit", "0GB", "expected a size, e.g."),
        ("--device-memory", "141 GBs", "expected a size, e.g. 512MB or 80GiB, got"),
        ("--memory-limit", "0.905", "expected a fraction from 0.01 to 1.0 in steps of 0.01"),
        ("--memory-limit", "0.0", "expected a fraction from 0.01 to 1.0 in steps of 0.01"),
        ("--memory-limit", "1.01", "expected a fraction from 0.01 to 1.0 in steps of 0.01"),
        ("--memory-limit", "90%", "or a fraction of free memory, e.g. 0.9"),
        ("--memory-limit", "-0.9", "or a fraction of free memory, e.g. 0.9"),
    ],
)
def test_sizes_that_are_none_are_named(option, text, words, capsys):
    assert command_line.main(["plan", f"{option}={text}"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    for word in (option, repr(text), words):
        assert word in captured.err


@pytest.mark.parametrize("text", ["any", "-1", "2.0"])
def test_a_world_size_is_a_number_or_auto(text, capsys):
    assert WorldSize(0).convert("auto", None, None) == 0
    assert WorldSize(0).convert("0", None, None) == 0
    assert WorldSize(0).convert("8", None, None) == 8
    assert command_line.main(["plan", f"--world-size={text}"]) == 2
    assert "--world-size" in capsys.readouterr().err


def test_without_a_command_all_are_listed(capsys):
    assert command_line.main([]) == 2
    shown = capsys.readouterr().err
    assert all(name in shown for name in command_line.COMMANDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("off", ("off", 0)),
        ("lookup:1", ("lookup", 1)),
        ("lookup:7", ("lookup", 7)),
        ("mtp", ("mtp", 1)),
        ("auto", ("auto", 7)),
    ],
)
def test_speculation_becomes_options_of_the_engine(text, expected, monkeypatch):
    monkeypatch.setenv("GLM_SPECULATE", text)
    values = COMMANDS[("serve",)].make_context("serve", [], parent=ROOT_CONTEXT).params
    made = make_engine_values({name: values[name] for name in ENGINE})
    chosen = make_engine_options("folder", made)
    assert (chosen.speculate, chosen.max_draft_tokens) == expected


@pytest.mark.parametrize(
    "text",
    ["", "on", "lookup", "lookup:0", "lookup:8", "lookup:-1", "auto:2", "mtp:1", "MTP", "9" * 400],
)
def test_other_speculation_is_refused(text, capsys):
    assert command_line.main(["generate", "x", f"--speculate={text}"]) == 2
    line = capsys.readouterr().err
    assert "--speculate" in line
    assert len(line) < 200
    assert not text or "expected off, lookup:N with N from 1 to 7, mtp or auto, got '" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--speculate", "lookup:3"), " needs --synthetic, because it changes the text\n"),
        (("--synthetic", "glm-4.5-air-fp8"), " needs --speculate lookup:N, mtp or auto\n"),
        (
            ("--synthetic", "glm-4.5-air-fp8", "--speculate", "off"),
            " needs --speculate lookup:N, mtp or auto\n",
        ),
        (
            ("--synthetic", "glm-4.5-air-fp8", "--speculate", "lookup:1"),
            ": expected 1 to 2 with --speculate lookup:1, got 2.5\n",
        ),
        (
            ("--synthetic", "glm-4.5-air-fp8", "--speculate", "mtp"),
            ": expected 1 to 2 with --speculate mtp, got 2.5\n",
        ),
    ],
)
@pytest.mark.parametrize("command", [("bench",), ("load", "--engine"), ("serve", "--port", "0")])
def test_forced_acceptance_needs_random_weights_and_drafts(command, words, message, capsys):
    assert command_line.main([*command, "--acceptance-length", "2.5", *words]) == 2
    assert capsys.readouterr().err == f"glm: --acceptance-length{message}"

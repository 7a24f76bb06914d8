"""What the help shows: first what one needs, and what commands share on pages of their own."""

import copy
import re

import click
import pytest

from glm_engine.cli import command_line, help_pages, options
from glm_engine.cli.aliases import aliases_of, key_of
from tests.python.cli.test_option_sources import COMMANDS, ROOT_CONTEXT

WITH_ENGINE = [
    path for path, one in COMMANDS.items() if "max_batch" in {p.name for p in one.params}
]


def printed(capsys, *words):
    assert command_line.main(list(words)) == 0
    return capsys.readouterr().out


def shown_first(text):
    """Return the keys under the first heading."""
    part = text.split("\nOptions:\n")[1].split("\n\n")[0]
    lines = re.findall(r"^  (?:-\w, )?--([a-z-]+)", part, re.MULTILINE)
    return tuple(lines)


@pytest.mark.parametrize("name", help_pages.FIRST)
def test_what_one_needs_comes_first(name, capsys):
    wanted = help_pages.FIRST[name]
    assert len(wanted) == 6
    assert shown_first(printed(capsys, name, "--help")) == wanted


@pytest.mark.parametrize("name", ["plan", "serve"])
def test_a_command_of_a_group_has_an_order_of_its_own(name, capsys):
    assert shown_first(printed(capsys, "deploy", name, "--help"))[0] == "local"


@pytest.mark.parametrize("path", WITH_ENGINE, ids=" ".join)
def test_each_engine_option_is_shown_or_named_with_its_page(path, capsys):
    text = printed(capsys, *path, "--help")
    assert "see `glm help engine`." in " ".join(text.split())
    keys = {key_of(one) for one in COMMANDS[path].params if getattr(one, "topic", None) == "engine"}
    assert len(keys) == len(options.ENGINE)
    for key in keys:
        assert f"--{key}" in text
    described = [key for key in keys if re.search(rf"^  (-\w, )?--{key} ", text, re.MULTILINE)]
    assert len(described) < 8


def test_the_pages_of_shared_options_have_a_text_for_each(capsys):
    for topic, table in options.TOPICS.items():
        text = printed(capsys, "help", topic)
        assert len(re.findall(r"^  (?:-\w, )?--[a-z]", text, re.MULTILINE)) == len(table)
        assert "glm help" not in text
        stated = " ".join(text.split()).count("default: ")
        assert stated == len(table) - (topic == "engine")


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_help_has_no_bounds_of_32_bits_and_no_broken_name(path, capsys):
    text = printed(capsys, *path, "--help")
    assert not re.search(r"2147483647|18446744073709551615|RANGE|default: \(", text)
    assert help_pages.WHOLE_HYPHEN not in text
    assert not re.search(r"--[\w-]*-$", text, re.MULTILINE)


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_help_shows_the_names_of_other_engines(path, capsys):
    text = " ".join(printed(capsys, *path, "--help").split())
    for param in COMMANDS[path].params:
        is_elsewhere = getattr(param, "topic", None) and re.search(f"--{key_of(param)}[,:]", text)
        if isinstance(param, click.Option) and not is_elsewhere and aliases_of(param):
            assert f"[also: {', '.join(aliases_of(param))}" in text


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_every_option_has_a_text(path):
    for param in COMMANDS[path].get_params(ROOT_CONTEXT):
        if isinstance(param, click.Option) and not param.hidden:
            assert re.fullmatch(r"[A-Z-].*\.", param.help, re.DOTALL), param.opts


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_help_has_none_of_the_words_at_which_native_readers_stumble(path, capsys):
    text = " ".join(printed(capsys, *path, "--help").split())
    assert not re.search(r"\b(share of|in all|whoever|lacks?|likewise|else the)\b|, too\b", text)


def test_the_list_of_commands_agrees_with_their_help(capsys):
    words = "an OpenAI- and Anthropic-compatible HTTP API."
    for arguments in (("--help",), ("serve", "--help")):
        assert words in " ".join(printed(capsys, *arguments).split())


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_the_option_for_help_is_the_last_one_of_its_heading(path, capsys):
    text = printed(capsys, *path, "--help")
    part = text[text.index("  -h, --help") :]
    assert re.fullmatch(r"  -h, --help +Show this message and exit\.(\n\n.*)?\s*", part, re.DOTALL)


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_a_command_has_both_names_of_help_in_any_context(path):
    command = copy.copy(COMMANDS[path])
    command._help_option = None
    assert command.get_help_option(click.Context(command)).opts == ["-h", "--help"]


def test_the_page_of_sampling_agrees_with_the_help_of_chat(capsys):
    kinds = re.compile(r"^  --([a-z-]+) (\w+)", re.MULTILINE)
    page, chat = printed(capsys, "help", "sampling"), printed(capsys, "chat", "--help")
    shared = dict(kinds.findall(page))
    assert (shared["temperature"], "FLOAT" in page) == ("NUMBER", False)
    found = dict(kinds.findall(chat))
    assert {name: found[name] for name in shared if name != "logprobs"} == {
        name: kind for name, kind in shared.items() if name != "logprobs"
    }
    assert "`glm chat` and `glm serve` use the model's own defaults." in " ".join(page.split())


def test_the_help_names_the_short_names_of_data_types(capsys):
    page = " ".join(printed(capsys, "help", "engine").split())
    assert "fp8_e4m3 (or fp8), bfloat16 (or bf16) on a GPU" in page


def test_a_topic_is_as_wide_as_a_command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    assert max(map(len, printed(capsys, "help", "engine").splitlines())) > 80


@pytest.mark.parametrize("words", [("serve",), ("deploy", "plan"), ("deploy",)])
def test_help_of_a_command_is_its_help(words, capsys):
    assert printed(capsys, "help", *words) == printed(capsys, *words, "--help")
    assert printed(capsys, "help") == printed(capsys, "--help")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("help", "generat"), "No such command 'generat'. Did you mean 'generate'? `glm help"),
        (
            ("help", "metrics"),
            "No such command 'metrics'. `glm --help` lists the commands. `glm help",
        ),
        (("help", "metrics"), "`glm help engine` and `glm help sampling` show the options"),
        (("help", "deploy", "metrics"), "No such command 'metrics'.\n"),
        (("help", "serve", "me"), "`glm serve` has no subcommands, got 'me'"),
        (("--model", "x", "serve"), "expected `glm COMMAND --model`"),
    ],
)
def test_wrong_words_are_told(words, message, capsys):
    assert command_line.main(list(words)) == 2
    assert message in capsys.readouterr().err

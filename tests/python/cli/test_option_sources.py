"""Options from the command line, variables, files and defaults: which wins, and what is refused."""

import ctypes
import itertools
import json
import re

import click
import pytest

from glm_engine.cli import command_line, options
from glm_engine.cli.aliases import key_of
from glm_engine.cli.option_sources import FILE, commands_below, keys_of
from glm_engine.cli.options import ByteSize
from glm_engine.core import abi
from glm_engine.core.libraries import load_engine_library

ROOT_CONTEXT = click.Context(command_line.commands, info_name="glm")
BY_FILE, BY_VARIABLE, BY_LINE = 1000, 2000, 3000
OWN_POSITIONS = 4096


def all_commands(group=command_line.commands, path=()):
    """Yield (path, command) of every command, those in groups of commands too."""
    for name, command in commands_below(group, ROOT_CONTEXT).items():
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(all_commands())


def all_options():
    for path, command in COMMANDS.items():
        for key, param in keys_of(command).items():
            if isinstance(param, click.Option):
                yield pytest.param(path, key, id=f"{' '.join(path)} {key}")


def write(folder, text):
    path = folder / "glm.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def planned(capsys, *arguments):
    assert command_line.main(["plan", "--device", "cpu", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    """Run a command that must refuse its input, and return its one line."""
    assert command_line.main([*arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("glm: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.parametrize("stated", list(itertools.product([False, True], repeat=3)))
def test_the_command_line_wins_over_a_variable_and_that_over_a_file(
    stated, tmp_path, monkeypatch, capsys
):
    in_file, in_variable, on_line = stated
    arguments, expected = [], OWN_POSITIONS
    if in_file:
        arguments += ["--config", write(tmp_path, f"max-seq = {BY_FILE}")]
        expected = BY_FILE
    if in_variable:
        monkeypatch.setenv("GLM_MAX_SEQ", str(BY_VARIABLE))
        expected = BY_VARIABLE
    if on_line:
        arguments += ["--max-seq", str(BY_LINE)]
        expected = BY_LINE
    found = planned(capsys, *arguments)
    assert found["max_seq"] == expected
    assert found["max_seq_from"] == ("option" if any(stated) else "model")


def test_the_table_of_a_command_wins_over_what_stands_above_it(tmp_path, monkeypatch, capsys):
    text = "max-seq = 1000\nmax-batch = 3\n[plan]\nmax-seq = 1500\n[bench]\nmax-batch = 5\n"
    found = planned(capsys, "--config", write(tmp_path, text))
    assert (found["max_seq"], found["max_batch"]) == (1500, 3)
    monkeypatch.setenv("GLM_CONFIG", write(tmp_path, "[plan]\nmax-seq = 1700\n"))
    assert planned(capsys)["max_seq"] == 1700


def test_tables_of_groups_hold_those_of_their_commands(tmp_path):
    seen = []

    @options.command("plan")
    @click.option("--gpus")
    @click.option("--region")
    def plan(**values):
        seen.append(values)

    program = click.Group("glm", {"plan": plan, "deploy": click.Group("deploy", {"plan": plan})})
    text = "gpus = 1\n[plan]\ngpus = 2\nregion = 'a'\n[deploy]\nregion = 'b'\n"
    file = write(tmp_path, text)
    program.main(["deploy", "plan", "--config", file], standalone_mode=False)
    program.main(["plan", "--config", file], standalone_mode=False)
    file = write(tmp_path, f"{text}[deploy.plan]\ngpus = 3\n")
    program.main(["deploy", "plan", "--config", file], standalone_mode=False)
    assert [(one["gpus"], one["region"]) for one in seen] == [("1", "b"), ("2", "a"), ("3", "b")]


def stated_text(param):
    """A text that the command line takes for an option, and that is not its default."""
    if isinstance(param.type, click.Choice):
        return list(param.type.choices)[-1]
    if isinstance(param.type, ByteSize):
        return "5MB"
    if isinstance(param.type, click.types.FloatParamType):
        return "0.75"
    return "7"


def outcome(path, arguments):
    """What a command reads: the value of each parameter, or that it refuses."""
    try:
        made = COMMANDS[path].make_context(path[-1], arguments, parent=parent_of(path))
    except click.UsageError:
        return "refused"
    return made.params


def parent_of(path):
    parent = ROOT_CONTEXT
    for depth in range(1, len(path)):
        group = commands_below(parent.command, parent)[path[depth - 1]]
        parent = click.Context(group, info_name=path[depth - 1], parent=parent)
    return parent


def statements(key, param):
    """What states an option: words of the command line, a file's value, a variable's text."""
    if param.is_flag and param.default is True:
        return [param.secondary_opts[0]], "false", "false"
    if param.is_flag:
        return [f"--{key}"], "true", "true"
    text = stated_text(param)
    return [f"--{key}", text], json.dumps([text] if param.multiple else text), text


@pytest.mark.parametrize(("path", "key"), list(all_options()))
def test_every_option_has_a_variable_and_a_key(path, key, tmp_path, monkeypatch):
    command = COMMANDS[path]
    param = keys_of(command)[key]
    words, value, text = statements(key, param)
    needed = ["x" for one in command.params if isinstance(one, click.Argument) and one.required]
    by_line = outcome(path, [*words, *needed])
    file = write(tmp_path, f"[{'.'.join(path)}]\n{key} = {value}\n")
    assert outcome(path, ["--config", file, *needed]) == by_line
    monkeypatch.setenv(f"GLM_{key.replace('-', '_').upper()}", text)
    assert outcome(path, needed) == by_line
    assert by_line == "refused" or by_line[param.name] != param.get_default(ROOT_CONTEXT)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max-bach = 3", "max-bach is unknown; did you mean max-batch?"),
        ("[plan]\nmax_seq = 3", "[plan]: max_seq is unknown; did you mean max-seq?"),
        ("[plan]\nport = 3", "[plan]: port is unknown"),
        ("[serve]\nprot = 3", "[serve]: prot is unknown; did you mean port?"),
        ("[servr]\nport = 3", "[servr] is unknown; did you mean [serve]?"),
        ("config = 'x'", "config is unknown"),
        ("[plan.deeper]\nport = 3", "[plan]: [deeper] is unknown: no table is expected here"),
        ("page-size = 0", "page-size: expected 1 to 2147483647, got 0"),
        ("max-batch = 2.5", "max-batch: expected a whole number, got '2.5'"),
        ("max-batch = inf", "max-batch: expected a whole number, got 'inf'"),
        ("max-batch = true", "max-batch: expected a string or a number, got true"),
        ("max-batch = [1]", "max-batch: expected a string or a number, got a list"),
        ("max-batch = 1979-05-27", "max-batch: expected a string or a number, got datetime.date"),
        (f"max-batch = {'9' * 400}", "max-batch: expected 0 to 2147483647, got 400 characters"),
        (f"max-batch = {'9' * 9000}", "invalid TOML: "),
        ("device = 'tpu'", "device: 'tpu' is not one of"),
        ("device = ''", "device: expected a value, got an empty string"),
        ("memory-limit = '3q'", "memory-limit: expected a size, e.g."),
        ("prefix-cache = 1", "prefix-cache: expected true or false, got 1"),
        ("prefix-cache = 'no'", "prefix-cache: expected true or false, got 'no'"),
        (f"prefix-cache = '{'x' * 9000}'", "prefix-cache: expected true or false, got 'xxx"),
        ("max-batch = 1\nmax-batch = 2", "invalid TOML: "),
        ("max-batch = ", "invalid TOML: "),
        (f"max-batch = {'[' * 100_000}", "invalid TOML: "),
    ],
)
def test_a_wrong_file_is_named_with_its_key(text, message, tmp_path, capsys):
    path = write(tmp_path, text)
    line = refused(capsys, "plan", "--config", path)
    assert f"{path}: {message}" in line
    assert len(line) < len(path) + 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "served-model-name = 'x'",
            "served-model-name: expected a non-empty list, got 'x'",
        ),
        (
            "served-model-name = []",
            "served-model-name: expected a non-empty list, got an empty list",
        ),
        (
            "served-model-name = [1, true]",
            "served-model-name: expected a string or a number, got true",
        ),
        (
            "served-model-name = ['x', '']",
            "served-model-name: expected a value, got an empty string",
        ),
    ],
)
def test_a_repeatable_option_is_a_list(text, message, tmp_path, capsys):
    path = write(tmp_path, f"[serve]\n{text}\n")
    assert f"{path}: {message}" in refused(capsys, "serve", "--config", path)


def test_files_that_cannot_be_read(tmp_path, capsys):
    absent = str(tmp_path / "absent.toml")
    assert f"{absent}: cannot be read: No such file" in refused(capsys, "plan", "--config", absent)
    (tmp_path / "latin.toml").write_bytes(b"device = '\xe9'")
    assert "invalid UTF-8" in refused(capsys, "plan", "--config", str(tmp_path / "latin.toml"))
    assert "--config: expected a value" in refused(capsys, "plan", "--config", "")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GLM_PAGE_SIZE", "0", "GLM_PAGE_SIZE: expected 1 to 2147483647, got 0"),
        ("GLM_MAX_BATCH", "", "GLM_MAX_BATCH: expected a value, got an empty string"),
        ("GLM_PREFIX_CACHE", "maybe", "GLM_PREFIX_CACHE: 'maybe' is not a valid boolean"),
        ("GLM_DEVICE", "tpu", "GLM_DEVICE: 'tpu' is not one of"),
        (
            "GLM_SERVED_MODEL_NAME",
            " \t",
            "GLM_SERVED_MODEL_NAME: expected a value, got an empty string",
        ),
        ("GLM_CONFIG", "", "GLM_CONFIG: expected a value, got an empty string"),
    ],
)
def test_a_wrong_variable_is_named(name, value, message, monkeypatch, capsys):
    monkeypatch.setenv(name, value)
    assert message in refused(capsys, "serve")


def test_an_error_of_the_command_line_names_its_option(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GLM_MAX_BATCH", "3")
    path = write(tmp_path, "max-batch = 4")
    line = refused(capsys, "plan", "--config", path, "--max-batch", "-1")
    assert "'--max-batch': expected 0 to 2147483647, got -1" in line


def test_a_server_is_loaded_though_variables_speak_of_engines(monkeypatch, capsys):
    monkeypatch.setenv("GLM_DEVICE", "cpu")
    monkeypatch.setenv("GLM_MAX_SEQ", "64")
    arguments = ("load", "http://127.0.0.1:1", "--rate", "none")
    assert "only allowed with --engine" not in refused(capsys, *arguments)
    assert "only allowed with --engine: --max-seq" in refused(capsys, *arguments, "--max-seq", "64")


@pytest.mark.parametrize("path", list(COMMANDS), ids=" ".join)
def test_help_states_every_default_under_headings(path, capsys):
    assert command_line.main([*path, "--help"]) == 0
    printed = capsys.readouterr().out
    settings = COMMANDS[path].context_settings
    context = click.Context(COMMANDS[path], info_name=path[-1], **settings)
    for param in COMMANDS[path].params:
        if isinstance(param, click.Option) and not param.hidden:
            names, text = param.get_help_record(context)
            is_plain_flag = param.is_flag and not param.secondary_opts
            assert is_plain_flag or param.required or "[default: " in text, names
            assert text.count("default:") <= 1, names
            assert f"--{key_of(param)}" in printed
    headings = re.findall(r"^(\w[\w ]*):$", printed, re.MULTILINE)
    assert len(headings) == len(set(headings))
    has_engine = "max_batch" in {param.name for param in COMMANDS[path].params}
    assert ("Engine" in headings) == has_engine


def test_help_states_the_engines_own_defaults(capsys):
    chosen = abi.OptionsStruct(struct_size=ctypes.sizeof(abi.OptionsStruct))
    load_engine_library().engine_default_options(ctypes.byref(chosen))
    assert command_line.main(["help", "engine"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert chosen.world_size == 0
    assert "default: auto: the smallest number of GPUs (1, 2, 4 or 8)" in printed
    for key in ("page-size", "num-pages", "prefill-chunk"):
        default = getattr(chosen, key.replace("-", "_"))
        assert re.search(rf"--{key} N [^\[]*\[(also: [^]]*; )?default: {default}\]", printed), key
    assert re.search(rf"--threads N [^\[]*\[also: -t; default: {chosen.num_threads}\]", printed)
    assert (chosen.max_seq, chosen.max_batch, chosen.prefix_cache) == (0, 0, 1)
    assert chosen.max_step_tokens == 0
    assert re.search(
        r"--max-step-tokens [^\[]*\[also: .*; default: 8192 on a GPU, .*; 512", printed
    )
    assert "default: the model's, less if memory is limited]" in printed


def test_commands_state_their_own_defaults(capsys):
    for name, batch, context in (("smoke", 4, 256), ("evaluate", 32, 256)):
        assert command_line.main([name, "--help"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert re.search(rf"--max-batch [^\[]*\[also: [^]]*; default: {batch}\]", printed)
        assert re.search(rf"--max-seq [^\[]*\[also: [^]]*; default: {context}\]", printed)


def test_the_file_is_an_option_of_every_command():
    for command in (one for one in COMMANDS.values() if isinstance(one, options.Command)):
        assert sum(key_of(param) == FILE for param in command.params) == 1

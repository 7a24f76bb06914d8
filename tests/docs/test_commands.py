"""Each `glm` command line of the documents names a command and options that the program has."""

import re
import shlex

import click
import pytest

from glm_engine.cli.aliases import AnswerOption
from glm_engine.cli.command_line import commands
from tests.docs.documents import ROOT, command_lines, documents

SHELLS = r"tools/develop (?:--with [\w,]+ )?|nix develop -c |python -m "
PREFIX = re.compile(rf"^\s*(?:\$ )?(?:{SHELLS})?")
ENDS = {"|", "&&", ">", ">>", "&", "2>&1", "<", ";"}
STAND_FOR_OTHERS = {"OPTIONS", "REQUESTS"}
GAP = re.compile(r"\s{3,}\S.*$")


def command_of(line):
    """The words after `glm` of a line that runs it, without what explains it beside; else None."""
    rest = GAP.sub("", PREFIX.sub("", line, count=1))
    if not re.match(r"glm(_engine)?( |$)", rest):
        return None
    words = shlex.split(rest)[1:]
    stops = [index for index, word in enumerate(words) if word in ENDS]
    return words[: stops[0]] if stops else words


def problems(words):
    """What of a command line the program does not have."""
    context = click.Context(commands, info_name="glm")
    command = commands
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(context, name)
        if command is None:
            return [f"no command {name}"]
    parameters = [one for one in command.get_params(context) if not isinstance(one, AnswerOption)]
    known = {spelling for one in parameters for spelling in one.opts + one.secondary_opts}
    stated = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    wrong = [f"{command.name} has no {option}" for option in stated if option not in known]
    return wrong or surplus(command, words)


def surplus(command, words):
    """What of the words is left when each parameter of a command has what it takes."""
    if isinstance(command, click.Group):
        return []
    stated = [word for word in words if word not in STAND_FOR_OTHERS]
    with command.make_context(command.name, stated, resilient_parsing=True) as context:
        return [f"{command.name} does not take {word}" for word in context.args]


def stated_commands():
    for path in documents():
        for line in command_lines(path):
            try:
                words = command_of(line)
            except ValueError as error:
                raise AssertionError(f"{path}: {line}: {error}") from error
            if words is not None:
                yield pytest.param(words, id=f"{path.relative_to(ROOT)}: {' '.join(words)[:80]}")


@pytest.mark.parametrize("words", list(stated_commands()))
def test_a_stated_command_exists(words):
    assert problems(words) == []


def test_what_the_program_lacks_is_seen():
    assert problems(["plan", "FOLDER", "--world-size", "8"]) == []
    assert problems(["plan", "FOLDER", "--world-sizes=8"]) == ["plan has no --world-sizes"]
    assert problems(["plan", "--max-model-len", "8", "--swap-space=4"]) == [
        "plan has no --swap-space"
    ]
    assert problems(["sing"]) == ["no command sing"]
    assert problems(["plan", "FOLDER", "OTHER"]) == ["plan does not take OTHER"]
    assert problems(["plan", "--world-size", "8", "FOLDER"]) == []

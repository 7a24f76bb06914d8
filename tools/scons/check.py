"""`scons check`: formatters, types, source rules and word budget; all run, all failures told."""

import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NotRequired, TypedDict

from environment import Environment, Nodes, root_folder
from SCons.Action import Action
from targets import command_variables, run_command

C_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".cu", ".cuh")


class Step(TypedDict):
    """`suffixes`: of the files that the command gets; `brought_by`: what installs it."""

    name: str
    command: Sequence[str]
    required: bool
    suffixes: NotRequired[Sequence[str]]
    brought_by: NotRequired[str]
    one_by_one: NotRequired[bool]


STEPS: list[Step] = [
    {"name": "ruff format", "command": ["ruff", "format", "--check", "."], "required": True},
    {"name": "ruff check", "command": ["ruff", "check", "."], "required": True},
    {
        "name": "clang-format",
        "command": ["clang-format", "--dry-run", "-Werror"],
        "suffixes": C_SUFFIXES,
        "required": True,
    },
    {
        "name": "futhark fmt",
        "command": ["futhark", "fmt", "--check"],
        "suffixes": (".fut",),
        "required": False,
        "brought_by": "tools/develop --with futhark",
        "one_by_one": True,
    },
    {"name": "nixfmt", "command": ["nixfmt", "--check"], "suffixes": (".nix",), "required": False},
    {"name": "mypy", "command": ["mypy"], "required": True},
    {"name": "source rules", "command": [sys.executable, "tools/check"], "required": True},
    {"name": "words", "command": [sys.executable, "-m", "tools.check.words"], "required": True},
]


def tracked_files(root: Path) -> list[str]:
    """Every file git tracks or would track, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    present = (name for name in sorted(set(done.stdout.split("\0"))) if name)
    return [name for name in present if (root / name).is_file()]


def files_status(env: Environment, command: Sequence[str], files: Iterable[str]) -> str:
    """Runs a talkative command on each file alone and names the files that it refuses."""
    variables = command_variables(env)
    refused = [
        name
        for name in files
        if subprocess.run(
            [*command, name], cwd=root_folder(env), env=variables, stdout=subprocess.DEVNULL
        ).returncode
    ]
    return f"failed: {', '.join(refused)}" if refused else "passed"


def step_status(env: Environment, step: Step, files: Sequence[str]) -> str:
    """Runs one step and returns what became of it: passed, failed, or skipped and why."""
    command = list(step["command"])
    if not shutil.which(command[0], path=env["ENV"]["PATH"]):
        reason = f"{command[0]} is not on the PATH"
        if "brought_by" in step:
            reason += f": run with `{step['brought_by']}`"
        return f"failed: {reason}" if step["required"] else f"skipped: {reason}"
    if "suffixes" in step:
        chosen = [name for name in files if PurePosixPath(name).suffix in step["suffixes"]]
        if not chosen:
            return f"skipped: no file ends in {', '.join(step['suffixes'])}"
        if step.get("one_by_one"):
            return files_status(env, command, chosen)
        command += chosen
    status = run_command(env, command)
    return "passed" if status == 0 else f"failed: exit status {status}"


def check(target: Nodes, source: Nodes, env: Environment) -> int:
    """Runs all steps and prints one line for each; 1 when any failed."""
    files = tracked_files(root_folder(env))
    results = {step["name"]: step_status(env, step, files) for step in STEPS}
    for name, result in results.items():
        print(f"{name:13} {result}")
    return int(any(result.startswith("failed") for result in results.values()))


def exists(env: Environment) -> bool:
    """The checks are listed here; each says itself when its tool is absent."""
    return True


def generate(env: Environment) -> None:
    """Adds CheckTarget."""
    env.AddMethod(
        lambda env: env.CommandTarget(
            "check",
            "formatters (ruff, clang-format, futhark fmt, nixfmt), mypy, source rules, word budget",
            Action(check, "check formats, types and source rules"),
        ),
        "CheckTarget",
    )

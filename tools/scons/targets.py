"""Named targets: each has a help text and, where it runs a command, an environment."""

import os
import subprocess
from collections.abc import Sequence
from typing import Any

from environment import Environment, Node, Nodes, Sources, add_methods, root_folder
from SCons.Action import Action

CONSOLE = "#build/console"


def command_variables(env: Environment) -> dict[str, str]:
    """The caller's environment with the package's folder and the build's search path in front."""
    root = root_folder(env)
    python_path = [str(root / "python"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PATH": env["ENV"]["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
        "GLM_BUILD_DIR": str(root / "build"),
    }


def run_command(env: Environment, command: Sequence[object]) -> int:
    """Runs one command in the checkout's root and returns its exit status."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=root_folder(env),
        env=command_variables(env),
    ).returncode


def command_action(env: Environment, command: Sequence[object]) -> Action:
    """An action that runs `command`; its exit status decides whether the target failed."""

    def run(target: Nodes, source: Nodes, env: Environment) -> int:
        return run_command(env, command)

    return Action(run, " ".join(str(word) for word in command))


def failure(env: Environment, reason: str) -> Action:
    """An action that tells why a target cannot be made on this machine, and fails."""

    def tell(target: Nodes, source: Nodes, env: Environment) -> int:
        print(f"{target[0]}: {reason}")
        return 1

    return Action(tell, None)


def requirement(env: Environment, target: Nodes, name: str, problem: str | None) -> None:
    """Makes `target` fail with `problem`, the reason why this machine cannot build it, if any."""
    if problem:
        node = env.Command(f"#build/missing/{name}", [], env.Failure(problem))
        env.NoCache(node)
        env.Depends(target, node)


def named_target(env: Environment, name: str, help_text: str, nodes: Nodes) -> list[Node]:
    """Gives `nodes` a name and a line in the help."""
    env["GLM_TARGETS"][name] = help_text
    return env.Alias(name, nodes)


def command_target(
    env: Environment, name: str, help_text: str, action: Any, depends: Sources = ()
) -> list[Node]:
    """A target that always runs `action` (Actions, or the words of a command) after `depends`."""
    env["GLM_TARGETS"][name] = help_text
    if isinstance(action, list) and isinstance(action[0], str):
        action = command_action(env, action)
    target = env.Alias(name, depends, action)
    env.AlwaysBuild(target)
    env.SideEffect(CONSOLE, target)
    return target


def required_sources(env: Environment, *patterns: str) -> list[Node]:
    """Files matching the patterns; one without a match stays, as a source that is not found."""
    found: list[Node] = []
    for pattern in patterns:
        matches = sorted(env.Glob(pattern), key=str)
        found.extend(matches or [env.File(pattern)])
    return found


def target_help(env: Environment) -> str:
    """The text of `scons -h`."""
    targets = env["GLM_TARGETS"]
    width = max(map(len, targets))
    lines = [f"  {name:{width}}  {text}" for name, text in sorted(targets.items())]
    return "\n".join(
        [
            "",
            "scons             the engine, the CPU device and the sizes of the CUDA device:",
            "                  build/engine.so, build/debug/engine.so,",
            "                  build/libglm_cpu.so, build/libglm_cuda_plan.so",
            "scons TARGETS     one or more of:",
            "",
            *lines,
            "",
            "warnings=errors   treats C and C++ compiler warnings as errors",
            "GLM_BUILD_CACHE=FOLDER moves the shared cache, GLM_BUILD_CACHE=off turns it off.",
            "",
        ]
    )


def exists(env: Environment) -> bool:
    """The named targets need nothing but SCons."""
    return True


def generate(env: Environment) -> None:
    """Adds Failure, Requirement, NamedTarget, CommandTarget, RequiredSources and TargetHelp."""
    env["GLM_TARGETS"] = {"libraries": "the libraries alone: what plain `scons` builds"}
    add_methods(
        env,
        Failure=failure,
        Requirement=requirement,
        NamedTarget=named_target,
        CommandTarget=command_target,
        RequiredSources=required_sources,
        TargetHelp=target_help,
    )

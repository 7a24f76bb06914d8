"""Named targets: each has a help text and, where it runs a command, an environment."""

import os
import subprocess

from environment import root_folder
from SCons.Action import Action

CONSOLE = "#build/console"


def command_variables(env):
    """The caller's environment with the package's folder and the build's search path in front."""
    root = root_folder(env)
    python_path = [str(root / "python"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PATH": env["ENV"]["PATH"],
        "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
        "GLM_BUILD_DIR": str(root / "build"),
    }


def run_command(env, command):
    """Runs one command in the checkout's root and returns its exit status."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=root_folder(env),
        env=command_variables(env),
    ).returncode


def command_action(env, command):
    """An action that runs `command`; its exit status decides whether the target failed."""

    def run(target, source, env):
        return run_command(env, command)

    return Action(run, " ".join(str(word) for word in command))


def failure(env, reason):
    """An action that tells why a target cannot be made on this machine, and fails."""

    def tell(target, source, env):
        print(f"{target[0]}: {reason}")
        return 1

    return Action(tell, None)


def requirement(env, target, name, problem):
    """Makes `target` fail with `problem`, the reason why this machine cannot build it, if any."""
    if problem:
        node = env.Command(f"#build/missing/{name}", [], env.Failure(problem))
        env.NoCache(node)
        env.Depends(target, node)


def named_target(env, name, help_text, nodes):
    """Gives `nodes` a name and a line in the help."""
    env["GLM_TARGETS"][name] = help_text
    return env.Alias(name, nodes)


def command_target(env, name, help_text, action, depends=()):
    """A target that always runs `action` (Actions, or the words of a command) after `depends`."""
    env["GLM_TARGETS"][name] = help_text
    if isinstance(action, list) and isinstance(action[0], str):
        action = command_action(env, action)
    target = env.Alias(name, depends, action)
    env.AlwaysBuild(target)
    env.SideEffect(CONSOLE, target)
    return target


def required_sources(env, *patterns):
    """Files matching the patterns; one without a match stays, as a source that is not found."""
    found = []
    for pattern in patterns:
        matches = sorted(env.Glob(pattern), key=str)
        found.extend(matches or [env.File(pattern)])
    return found


def target_help(env):
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


def exists(env):
    """The named targets need nothing but SCons."""
    return True


def generate(env):
    """Adds Failure, Requirement, NamedTarget, CommandTarget, RequiredSources and TargetHelp."""
    env["GLM_TARGETS"] = {"libraries": "the libraries alone: what plain `scons` builds"}
    env.AddMethod(failure, "Failure")
    env.AddMethod(requirement, "Requirement")
    env.AddMethod(named_target, "NamedTarget")
    env.AddMethod(command_target, "CommandTarget")
    env.AddMethod(required_sources, "RequiredSources")
    env.AddMethod(target_help, "TargetHelp")

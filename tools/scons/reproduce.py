"""`scons reproduce`: the same commit gives the same bytes, wherever it is checked out."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from environment import Environment, Nodes, root_folder
from lowering import sha256
from SCons.Action import Action
from targets import command_variables

CHECKOUTS = ("a", "a folder with a longer name/and-another-below-it/checkout")


class ReproductionError(Exception):
    """A clone could not be built, or two builds of one commit differ."""


def run(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> str:
    """Runs a command to its end; its output is shown only when it fails."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReproductionError(f"{' '.join(command)} in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


def targets(env: Environment) -> list[str]:
    """Every library that this machine can build, and the release made of them."""
    names = ["libraries", "futhark_cpu"]
    if not env.CudaProblem():
        names.append("futhark")
    problem = env.DeviceProblem()
    if problem:
        print(f"skipped: the CUDA device library: {problem}")
    else:
        names.append("cuda")
    return [*names, "wheel"]


def build_clone(
    root: Path,
    commit: str,
    folder: Path,
    variables: Mapping[str, str],
    names: Sequence[str],
    jobs: int,
) -> dict[str, str]:
    """Clones one commit into `folder`, builds it uncached and returns sha256 by output.

    `jobs` is the number of commands that run at once.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    clone = ["git", "clone", "--quiet", "--no-hardlinks", "--no-checkout", str(root), str(folder)]
    run(clone, root, variables)
    run(["git", "checkout", "--quiet", "--detach", commit], folder, variables)
    run([sys.executable, "-m", "SCons", f"-j{jobs}", "--cache-disable", *names], folder, variables)
    made = sorted([*folder.glob("build/**/*.so"), *folder.glob("build/wheel/*")])
    return {path.relative_to(folder).as_posix(): sha256(path) for path in made}


def jobs_of_each(env: Environment) -> int:
    """How many commands each of the builds that run at once may run at once."""
    return max(1, int(env.GetOption("num_jobs")) // len(CHECKOUTS))


def clone_variables(env: Environment) -> dict[str, str]:
    """The caller's environment without what points into the caller's own checkout."""
    variables = command_variables(env) | {"GLM_BUILD_CACHE": "off"}
    for name in ("GLM_ROOT", "GLM_BUILD_DIR"):
        variables.pop(name, None)
    own = str(root_folder(env) / "python")
    groups = [path for path in variables["PYTHONPATH"].split(os.pathsep) if path != own]
    return variables | {"PYTHONPATH": os.pathsep.join(groups)}


def compare_clones(env: Environment, folder: Path) -> None:
    """Builds the two clones at once, each with half of the jobs; raises unless every library has
    the same bytes in both."""
    root, variables = root_folder(env), clone_variables(env)
    commit = run(["git", "rev-parse", "HEAD"], root, variables).strip()
    print(f"commit    {commit}")
    names, jobs = targets(env), jobs_of_each(env)
    with ThreadPoolExecutor(len(CHECKOUTS)) as pool:
        builds = [
            pool.submit(build_clone, root, commit, folder / name, variables, names, jobs)
            for name in CHECKOUTS
        ]
    first, second = (build.result() for build in builds)
    for name in sorted(first.keys() | second.keys()):
        same = first.get(name) == second.get(name)
        print(f"{'same' if same else 'DIFFERENT':9} {first.get(name) or second[name]} {name}")
    if not first:
        raise ReproductionError("the clones built no library")
    if first != second:
        raise ReproductionError("two builds of one commit differ")


def reproduce(target: Nodes, source: Nodes, env: Environment) -> int:
    """Compares two clones; says what differs."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        try:
            compare_clones(env, Path(folder))
        except ReproductionError as error:
            print(error)
            return 1
    return 0


def exists(env: Environment) -> bool:
    """True where git is on the path."""
    return shutil.which("git", path=env["ENV"]["PATH"]) is not None


def generate(env: Environment) -> None:
    """Adds ReproduceTarget."""
    env.AddMethod(
        lambda env: env.CommandTarget(
            "reproduce",
            "builds HEAD in two clones at different paths and compares the bytes",
            Action(reproduce, "build two clones of HEAD"),
        ),
        "ReproduceTarget",
    )

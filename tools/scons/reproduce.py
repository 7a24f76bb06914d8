"""`scons reproduce`: the same commit gives the same bytes, wherever it is checked out."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from environment import Environment, Nodes, root_folder
from lowering import sha256
from SCons.Action import Action
from targets import command_variables

CHECKOUTS = ("a", "a folder with a longer name/and-another-below-it/checkout")
CUDA_LIBRARY = "build/libglm_cuda.so"
DEVICE_OBJECT = ".cu.o"
OBJECT = ".o"
OUTPUTS = ("build/**/*.so", "build/wheel/*", f"build/obj/**/*{OBJECT}")


class ReproductionError(Exception):
    """A clone could not be built, or two builds of one commit differ."""


def run(command: Sequence[str], folder: Path, variables: Mapping[str, str]) -> str:
    """Runs a command to its end; its output is shown only when it fails."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReproductionError(f"{' '.join(command)} in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


def targets(env: Environment) -> tuple[list[str], list[str]]:
    """What each clone builds: the first every library that this machine can build, and the
    release made of them; the second the same, but of nvcc's objects the smallest of each setting.
    """
    names = ["libraries", "futhark_cpu"]
    if not env.CudaProblem():
        names.append("futhark")
    problem = env.DeviceProblem()
    if problem:
        print(f"skipped: the CUDA device library: {problem}")
        return [*names, "wheel"], [*names, "wheel"]
    return [*names, "cuda", "wheel"], [*names, "wrappers", "cuda_samples"]


def outputs(folder: Path) -> dict[str, str]:
    """The sha256 of each object, library and archive that was built in a clone."""
    made = sorted(path for pattern in OUTPUTS for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): sha256(path) for path in made}


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
    return outputs(folder)


def release_with(library: Path, folder: Path, variables: Mapping[str, str]) -> dict[str, str]:
    """Makes the release of a clone with the other's CUDA library; returns sha256 by archive."""
    shutil.copy2(library, folder / CUDA_LIBRARY)
    python_path = os.pathsep.join(filter(None, (str(folder / "python"), variables["PYTHONPATH"])))
    command = [sys.executable, "-m", "tools.release", "cpu", "cuda"]
    run(command, folder, {**variables, "PYTHONPATH": python_path})
    return {name: value for name, value in outputs(folder).items() if "/wheel/" in name}


def jobs_of_each(env: Environment) -> tuple[int, int]:
    """How many commands each build may run at once: the second has far fewer."""
    jobs = int(env.GetOption("num_jobs"))
    return jobs, max(1, jobs // 2)


def clone_variables(env: Environment) -> dict[str, str]:
    """The caller's environment without what points into the caller's own checkout."""
    variables = command_variables(env) | {"GLM_BUILD_CACHE": "off"}
    for name in ("GLM_ROOT", "GLM_BUILD_DIR"):
        variables.pop(name, None)
    own = str(root_folder(env) / "python")
    groups = [path for path in variables["PYTHONPATH"].split(os.pathsep) if path != own]
    return variables | {"PYTHONPATH": os.pathsep.join(groups)}


def verdict(name: str, first: Mapping[str, str], second: Mapping[str, str]) -> str:
    """Says whether an output is the same in both clones; device code may be in one alone."""
    if name not in second and (name == CUDA_LIBRARY or name.endswith(DEVICE_OBJECT)):
        return "built once"
    return "same" if first.get(name) == second.get(name) else "DIFFERENT"


def compare(first: Mapping[str, str], second: Mapping[str, str]) -> None:
    """Prints what is the same in both clones, objects as a number; raises where something is not,
    and where no object of the device code that was built is in both."""
    verdicts = {name: verdict(name, first, second) for name in sorted({**first, **second})}
    for name, said in verdicts.items():
        if said == "DIFFERENT" or not name.endswith(OBJECT):
            print(f"{said:10} {first.get(name) or second[name]} {name}")
    for kind, ending in (("objects", OBJECT), ("of them by nvcc", DEVICE_OBJECT)):
        counts = Counter(said for name, said in verdicts.items() if name.endswith(ending))
        print(f"{kind}: {', '.join(f'{count} {said}' for said, count in counts.items()) or 'none'}")
    if not first:
        raise ReproductionError("the clones built no library")
    if "DIFFERENT" in verdicts.values():
        raise ReproductionError("two builds of one commit differ")
    if "built once" in verdicts.values() and not any(
        name.endswith(DEVICE_OBJECT) for name in second
    ):
        raise ReproductionError("the second clone compiled no device code")


def compare_clones(env: Environment, folder: Path) -> None:
    """Builds the two clones at once; raises unless what both built has the same bytes."""
    root, variables = root_folder(env), clone_variables(env)
    commit = run(["git", "rev-parse", "HEAD"], root, variables).strip()
    print(f"commit     {commit}")
    folders = [folder / name for name in CHECKOUTS]
    with ThreadPoolExecutor(len(CHECKOUTS)) as pool:
        builds = [
            pool.submit(build_clone, root, commit, each, variables, names, jobs)
            for each, names, jobs in zip(folders, targets(env), jobs_of_each(env), strict=True)
        ]
    first, second = (build.result() for build in builds)
    if CUDA_LIBRARY in first:
        second |= release_with(folders[0] / CUDA_LIBRARY, folders[1], variables)
    compare(first, second)


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
            "compares the bytes of HEAD from two clones; of device code, samples of each setting",
            Action(reproduce, "build two clones of HEAD"),
        ),
        "ReproduceTarget",
    )

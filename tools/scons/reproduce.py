"""`scons reproduce`: the same commit gives the same bytes, wherever it is checked out."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from environment import root_folder
from lowered import LOWERINGS
from lowering import LoweringError, sha256
from SCons.Action import Action
from targets import command_variables

CHECKOUTS = ("a", "a folder with a longer name/and-another-below-it/checkout")


class ReproductionError(Exception):
    """A clone could not be built, or two builds of one commit differ."""


def run(command, folder, variables):
    """Runs a command to its end; its output is shown only when it fails."""
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise ReproductionError(f"{' '.join(command)} in {folder}:\n{done.stdout}{done.stderr}")
    return done.stdout


def targets(env):
    """Every library that this machine can build."""
    names = ["libraries", "futhark_cpu"]
    if env["FUTHARK_VERSION"] and not env.CudaProblem():
        names.append("futhark_cuda")
    problem = env.DeviceProblem()
    if problem:
        print(f"skipped: the CUDA device library: {problem}")
    else:
        names.append("cuda")
    return names


def build_clone(root, commit, folder, variables, names):
    """Clones one commit into `folder`, builds it uncached and returns sha256 by library."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    clone = ["git", "clone", "--quiet", "--no-hardlinks", "--no-checkout", str(root), str(folder)]
    run(clone, root, variables)
    run(["git", "checkout", "--quiet", "--detach", commit], folder, variables)
    run([sys.executable, "-m", "SCons", "--cache-disable", *names], folder, variables)
    libraries = sorted((folder / "build").rglob("*.so"))
    return {path.relative_to(folder).as_posix(): sha256(path) for path in libraries}


def clone_variables(env):
    """The caller's environment without what points into the caller's own checkout."""
    variables = command_variables(env) | {"GLM_BUILD_CACHE": "off"}
    for name in ("PYTHONPATH", "GLM_ROOT", "GLM_BUILD_DIR"):
        variables.pop(name, None)
    if env["CUTLASS_FOLDER"]:
        variables["CUTLASS_HOME"] = str(env["CUTLASS_FOLDER"].parent)
    return variables


def compare_clones(env, folder):
    """Builds the two clones and raises unless every library has the same bytes in both."""
    root, variables = root_folder(env), clone_variables(env)
    commit = run(["git", "rev-parse", "HEAD"], root, variables).strip()
    print(f"commit    {commit}")
    first, second = (
        build_clone(root, commit, folder / name, variables, targets(env)) for name in CHECKOUTS
    )
    for name in sorted(first.keys() | second.keys()):
        same = first.get(name) == second.get(name)
        print(f"{'same' if same else 'DIFFERENT':9} {first.get(name) or second[name]} {name}")
    if not first:
        raise ReproductionError("the clones built no library")
    if first != second:
        raise ReproductionError("two builds of one commit differ")


def compare_lowering(env, lowering, folder):
    """Lowers again where the compiler of the manifest is; raises unless the bytes are the same."""
    root = root_folder(env)
    tool = shutil.which(lowering.tool, path=env["ENV"]["PATH"])
    wanted = lowering.recorded(root)["versions"]
    present = lowering.versions(tool) if tool else f"no {lowering.tool} on the PATH"
    if present != wanted:
        print(f"skipped: {lowering.folder} again: its manifest names {wanted}, here is {present}")
        return
    checkout, again = folder / CHECKOUTS[1], folder / lowering.tool
    again.mkdir()
    lowering.write(tool, checkout, again)
    names = [*lowering.files, lowering.manifest]
    changed = [name for name in names if not same_lowering(checkout, lowering, again, name)]
    if changed:
        raise ReproductionError(f"lowering again gave other bytes: {', '.join(changed)}")
    print(f"same      {len(names)} files of {lowering.folder}, lowered again by {lowering.tool}")


def same_lowering(checkout, lowering, again, name):
    """Whether the committed file and the one lowered again have the same bytes."""
    made = again / Path(name).relative_to(lowering.folder)
    return (checkout / name).read_bytes() == made.read_bytes()


def reproduce(target, source, env):
    """Compares two clones, then each lowering; says what differs."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        try:
            compare_clones(env, Path(folder))
            for lowering in LOWERINGS:
                compare_lowering(env, lowering, Path(folder))
        except (ReproductionError, LoweringError) as error:
            print(error)
            return 1
    return 0


def exists(env):
    """True where git is on the path."""
    return shutil.which("git", path=env["ENV"]["PATH"]) is not None


def generate(env):
    """Adds ReproduceTarget."""
    env.AddMethod(
        lambda env: env.CommandTarget(
            "reproduce",
            "builds HEAD in two clones at different paths and compares the bytes",
            Action(reproduce, "build two clones of HEAD"),
        ),
        "ReproduceTarget",
    )

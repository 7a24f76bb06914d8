"""`scons lower` writes what the repository holds of compilers; the ordinary build verifies it."""

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from environment import Environment, Node, Nodes, depend_on_script, root_folder
from lowering import Lowering, LoweringError
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner import Scanner

from futhark import FUTHARK
from terra import TERRA

LOWERINGS = (TERRA, FUTHARK)


def tell(lowering: Lowering, lines: Iterable[str]) -> None:
    """Prints how the files of a lowering differ from their manifest."""
    print(f"{lowering.folder} does not match the current sources:")
    print("\n".join(f"  {line}" for line in lines))


def lower(target: Nodes, source: Nodes, env: Environment) -> int:
    """Runs the compiler into a folder of its own and, when all went well, replaces the files."""
    lowering: Lowering = env["LOWERING"]
    root = root_folder(env)
    lines = lowering.differences(root)
    if not lines:
        print(f"{lowering.folder} already matches the current sources; left unchanged")
        return 0
    tool = shutil.which(lowering.tool, path=env["ENV"]["PATH"])
    if not tool:
        tell(lowering, lines)
        print(f"`{lowering.tool}` is not on the PATH; {lowering.folder} is left unchanged")
        return 1
    (root / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root / "build") as folder:
        try:
            lowering.write(tool, root, Path(folder))
        except LoweringError as error:
            print(error)
            return 1
        shutil.copytree(folder, root / lowering.folder, dirs_exist_ok=True)
    return 0


def verify(target: Nodes, source: Nodes, env: Environment) -> int:
    """Copies files into build/ when the manifest and all it names agree with the checkout."""
    lowering: Lowering = env["LOWERING"]
    lines = lowering.differences(root_folder(env))
    if lines:
        tell(lowering, lines)
        print(f"Run `scons lower` on a machine with `{lowering.tool}`, then build again.")
        return 1
    for wanted, held in zip(target, source, strict=False):
        shutil.copyfile(str(held), str(wanted))
    return 0


def lowered(env: Environment, lowering: Lowering, names: Sequence[str], folder: str) -> list[Node]:
    """The verified files of one lowering (`names` below its folder), copied below `folder`."""
    held = [f"{lowering.folder}/{name}" for name in names]
    read = [lowering.manifest, *lowering.files, *lowering.sources(root_folder(env))]
    nodes: list[Node] = env.VerifiedFiles(
        [f"{folder}/{name}" for name in names],
        [f"#{name}" for name in dict.fromkeys([*held, *read])],
        LOWERING=lowering,
    )
    depend_on_script(env, nodes, "lowered.py", "lowering.py", f"{lowering.tool}.py")
    env.NoCache(nodes)
    return nodes


def named_already(node: Node, env: Environment, path: object) -> list[Node]:
    """No further input: every file that is read is a source."""
    return []


def lower_target(env: Environment) -> None:
    """Declares `lower`; when it (or its picture) was asked for, the same run builds from it."""
    env["GLM_TARGETS"]["lower"] = (
        "writes terra/lowered and futhark/lowered where their sources changed (needs the compilers)"
    )
    asked = list(map(str, env["GLM_COMMAND_LINE"]))
    if "lower" not in asked and asked != ["graph"]:
        return
    for lowering in LOWERINGS:
        outputs = [f"#{name}" for name in (*lowering.files, lowering.manifest)]
        sources = [f"#{name}" for name in lowering.sources(root_folder(env))]
        nodes = env.LowerFiles(outputs, sources, LOWERING=lowering)
        for settle in (env.AlwaysBuild, env.Precious, env.NoCache, env.NoClean):
            settle(nodes)
        env.Alias("lower", nodes)


def exists(env: Environment) -> bool:
    """Verifying needs nothing but the files."""
    return True


def generate(env: Environment) -> None:
    """Adds Lowered and LowerTarget."""
    from SCons.Script import COMMAND_LINE_TARGETS

    env["GLM_COMMAND_LINE"] = COMMAND_LINE_TARGETS
    for name, action in (
        ("LowerFiles", Action(lower, "lower ${LOWERING.folder}")),
        ("VerifiedFiles", Action(verify, "verify ${SOURCES[0]}")),
    ):
        env["BUILDERS"][name] = Builder(action=action, source_scanner=Scanner(named_already))
    env.AddMethod(lowered, "Lowered")
    env.AddMethod(lower_target, "LowerTarget")

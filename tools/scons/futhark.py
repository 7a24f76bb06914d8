"""The mathematics as C: in futhark/lowered for the cores, compiled on demand for GPUs."""

import re
from pathlib import Path

from environment import Environment, Node, Nodes, Source, depend_on_version, tool_version
from lowering import Lowering, run_compiler
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner import Scanner

IMPORT = re.compile(
    r'^\s*(?:local\s+)?(?:open\s+)?(?:module\s+\w+\s*=\s*)?import\s+"([^"]+)"', re.M
)
PROGRAM = "futhark/entries.fut"
TARGETS = {"kernels_cpu": ["multicore", "--library"]}
SUFFIXES = (".c", ".h", ".json")
FOR_CORES = "#[sequential] "
COMPILE = "futhark $FUTHARK_BACKEND --library -o ${TARGET.base} $SOURCE"


def futhark_versions(futhark: str) -> dict[str, str]:
    """What decides over the bytes: Futhark and the compiler that compiled it."""
    stated = run_compiler([futhark, "--version"], Path()).partition("\n\n")[0]
    return {"futhark": " ".join(stated.split())}


def lower_mathematics(futhark: str, root: Path, folder: Path) -> None:
    """Runs Futhark once for each target."""
    for name, options in TARGETS.items():
        run_compiler([futhark, *options, "-o", str(folder / name), PROGRAM], root)


FUTHARK = Lowering(
    tool="futhark",
    folder="futhark/lowered",
    patterns=("futhark/*.fut",),
    outputs=tuple(f"{name}{suffix}" for name in TARGETS for suffix in SUFFIXES),
    targets=TARGETS,
    run=lower_mathematics,
    versions=futhark_versions,
)


def imported_files(node: Node, env: Environment, path: object) -> list[Node]:
    """The files that one Futhark file imports, relative to its own folder."""
    folder = node.srcnode().get_dir()
    names = IMPORT.findall(node.get_text_contents())
    return [folder.File(f"{name}.fut") for name in names if not name.startswith("/prelude/")]


def write_for_gpus(target: Nodes, source: Nodes, env: Environment) -> None:
    """Copies one file without the attribute that keeps maps inside maps on one core."""
    text = source[0].get_text_contents()
    Path(str(target[0])).write_text(text.replace(FOR_CORES, ""))


def gpu_program(env: Environment, folder: str, shared: Nodes, own: Nodes) -> Node:
    """The program for GPUs: `own` files in place of those of the same name. Gives its entries."""
    files = {Path(str(node)).name: node for node in [*shared, *own]}
    write = Action(write_for_gpus, "write $TARGET")
    written = {
        name: env.Command(f"{folder}/{name}", node, write)[0] for name, node in files.items()
    }
    return written[Path(PROGRAM).name]


def futhark_library(env: Environment, target: str, source: Source, backend: str) -> list[Node]:
    """Compiles one program to TARGET.c, TARGET.h and TARGET.json with the given back end."""
    outputs = [f"{target}{suffix}" for suffix in SUFFIXES]
    nodes: list[Node] = env.FutharkCompile(outputs, source, FUTHARK_BACKEND=backend)
    depend_on_version(env, nodes, "futhark", env["FUTHARK_VERSION"])
    return nodes


def exists(env: Environment) -> bool:
    """True where Futhark is on the path."""
    return tool_version(env, "futhark", "--version") is not None


def generate(env: Environment) -> None:
    """Adds FutharkLibrary and GpuProgram."""
    env["FUTHARK_VERSION"] = tool_version(env, "futhark", "--version")
    scanner = Scanner(function=imported_files, skeys=[".fut"], recursive=True)
    action = Action(COMPILE, "futhark $FUTHARK_BACKEND $SOURCE")
    if not env["FUTHARK_VERSION"]:
        action = env.Failure(
            "futhark is not on the PATH: run with `tools/develop --with futhark`, or use Nix"
        )
    env["BUILDERS"]["FutharkCompile"] = Builder(action=action, source_scanner=scanner)
    env.AddMethod(futhark_library, "FutharkLibrary")
    env.AddMethod(gpu_program, "GpuProgram")

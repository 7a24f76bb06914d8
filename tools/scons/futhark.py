"""The mathematics as C, kept in futhark/lowered: for the cores, and for NVIDIA GPUs."""

import re
import tempfile
from pathlib import Path

from lowering import Lowering, LoweringError, run_compiler

PROGRAM = "futhark/entries.fut"
TARGETS = {
    "kernels_cpu": ["multicore", "--library"],
    "kernels_cuda": ["cuda", "--library"],
}
FOR_GPUS = "kernels_cuda"
SUFFIXES = (".c", ".h", ".json")
FOR_CORES = "#[sequential] "
ALLOCATION = re.compile(r"(.*_alloc\(.*&block->mem.*\);\n) *if \(ctx->error == NULL\)")
ITS_RESULT = r"    block->mem = 0;\n\1    if (ctx->error == NULL && block->mem != 0)"
NO_EARLIER_ERROR = (", old_error);", ', old_error == NULL ? "" : old_error);')


def futhark_versions(futhark: str) -> dict[str, str]:
    """What decides over the bytes: Futhark and the compiler that compiled it."""
    stated = run_compiler([futhark, "--version"], Path()).partition("\n\n")[0]
    return {"futhark": " ".join(stated.split())}


def write_program(root: Path, target: Path, for_gpus: bool) -> None:
    """Copies the program into futhark/ of another folder.

    For GPUs, the files of futhark/gpu take the place of those of the same name, and the attribute
    that keeps maps inside maps on one core is left out.
    """
    folder = target / "futhark"
    folder.mkdir()
    for source in ("futhark", "futhark/gpu") if for_gpus else ("futhark",):
        for path in (root / source).glob("*.fut"):
            text = path.read_text()
            (folder / path.name).write_text(text.replace(FOR_CORES, "") if for_gpus else text)


def report_refused_memory(program: Path) -> None:
    """Futhark 0.25 goes on with a null pointer where no memory is left: its own error comes here.

    Raises LoweringError where the program does not allocate in the way that is known.
    """
    text, count = ALLOCATION.subn(ITS_RESULT, program.read_text())
    if count == 0:
        raise LoweringError(f"{program.name}: expected {ALLOCATION.pattern}, found none")
    program.write_text(text.replace(*NO_EARLIER_ERROR))


def lower_mathematics(futhark: str, root: Path, folder: Path) -> None:
    """Runs Futhark once for each target."""
    for name, options in TARGETS.items():
        with tempfile.TemporaryDirectory() as sources:
            write_program(root, Path(sources), for_gpus=name == FOR_GPUS)
            run_compiler([futhark, *options, "-o", str(folder / name), PROGRAM], Path(sources))
        report_refused_memory(folder / f"{name}.c")


FUTHARK = Lowering(
    tool="futhark",
    folder="futhark/lowered",
    patterns=("futhark/*.fut", "futhark/gpu/*.fut", "tools/scons/futhark.py"),
    outputs=tuple(f"{name}{suffix}" for name in TARGETS for suffix in SUFFIXES),
    targets=TARGETS,
    run=lower_mathematics,
    versions=futhark_versions,
)

"""The engine's LLVM IR in terra/lowered, which Terra makes."""

import os
import tempfile
from pathlib import Path

from lowering import Lowering, LoweringError, run_compiler

FAMILIES = {
    "x86-64-v3": {"triple": "x86_64-pc-linux-gnu", "cpu": "x86-64-v3"},
}
BUILDS = ("release", "debug")
SCRIPT = "tools/scons/lower.t"
VERSION_SCRIPT = "print(terralib.version, terralib.llvm_version)"


def terra_versions(terra: str) -> dict[str, str | None]:
    """What decides over the bytes: Terra, its LLVM, and the C library whose headers it reads."""
    with tempfile.NamedTemporaryFile("w", suffix=".t") as script:
        script.write(VERSION_SCRIPT)
        script.flush()
        words = run_compiler([terra, script.name], Path()).split()
    if len(words) != 2:
        raise LoweringError(f"{terra} did not print its version: {' '.join(words)}")
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    return {"terra": words[0], "llvm": words[1], "libc": libc}


def lower_engine(terra: str, root: Path, folder: Path) -> None:
    """Runs Terra once for each family and build."""
    for family, target in FAMILIES.items():
        (folder / family).mkdir()
        for build in BUILDS:
            output = folder / family / f"{build}.ll"
            run_compiler([terra, SCRIPT, str(output), build, target["triple"]], root)


TERRA = Lowering(
    tool="terra",
    folder="terra/lowered",
    patterns=("terra/**/*.t", "native/include/glm/*.h", SCRIPT),
    outputs=tuple(f"{family}/{build}.ll" for family in FAMILIES for build in BUILDS),
    targets=FAMILIES,
    run=lower_engine,
    versions=terra_versions,
    left_out="*wrap.h",
)

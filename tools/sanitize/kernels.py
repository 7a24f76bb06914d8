"""Which kernels a library holds, and which of them were launched."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

SECTION = struct.Struct("<IIQQQQ")
SECTION_BYTES = 64
KERNEL = re.compile(rb"(?<=\0)_Z[A-Za-z0-9_]+(?=\0)")
NEVER_RUN = "glm::kernels::blackwell::"
BETWEEN_GPUS = "glm::collectives::(anonymous namespace)::gather_blocks<"
DEMANGLERS = ("cu++filt", "c++filt", "llvm-cxxfilt")


class LibraryError(Exception):
    """The names of a library's kernels cannot be read."""


def read_only_data(content: bytes) -> bytes:
    """The section .rodata of a 64-bit ELF file, where the CUDA runtime finds names of kernels."""
    if content[:5] != b"\x7fELF\x02":
        raise LibraryError("expected a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", content, 0x28)
    count, names = struct.unpack_from("<HH", content, 0x3C)
    sections = [SECTION.unpack_from(content, table + SECTION_BYTES * i) for i in range(count)]
    for name, _, _, _, offset, size in sections:
        begin = sections[names][4] + name
        if content[begin : begin + 8] == b".rodata\0":
            return content[offset : offset + size]
    raise LibraryError("expected a section .rodata, got none")


def mangled(library: Path) -> list[str]:
    names = {name.decode() for name in KERNEL.findall(read_only_data(library.read_bytes()))}
    if not names:
        raise LibraryError(f"expected kernels in {library}, got none")
    return sorted(names)


def demangled(names: list[str]) -> list[str]:
    program = next(filter(None, map(shutil.which, DEMANGLERS)), None)
    if program is None:
        raise LibraryError(f"expected one of {', '.join(DEMANGLERS)} on the PATH, got none")
    found = subprocess.run(
        [program], input="\n".join(names), capture_output=True, text=True, check=True
    )
    return found.stdout.splitlines()


def kernels_of(library: Path) -> set[str]:
    """The kernels that an H200 can run: functions, but those of Blackwell's namespace."""
    return {plain(name) for name in demangled(mangled(library)) if is_run(name)}


def is_run(name: str) -> bool:
    """Names of device variables end without parentheses."""
    return name.endswith(")") and NEVER_RUN not in name


def waits_for_other_gpus(name: str) -> bool:
    """Whether a kernel, by its plain name, runs only where each rank has a GPU of its own."""
    return BETWEEN_GPUS in name


def without_parameters(name: str) -> str:
    """A demangled name up to the parentheses at its end, which demanglers spell in many ways."""
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if depth == 0:
            return name[:place] if name.endswith(")") else name
    return name


def plain(name: str) -> str:
    """A demangled name whose spelling does not depend on the demangler."""
    name = without_parameters(name)
    name = re.sub(r"\((bool|int|unsigned int|glm::[\w:]+)\)(?=-?\d)", "", name)
    name = name.replace("<unnamed>", "(anonymous namespace)").replace("> >", ">>")
    for value, word in (("true", "1"), ("false", "0")):
        name = re.sub(rf"(?<=[<, ]){value}(?=[,>])", word, name)
    return name

"""Reports of racecheck that are known to be the tool's, checked instruction by instruction.

One form is taken: in a kernel of FORMS, a bulk copy into a slot of a ring against matrix loads of
that slot (README.md says why it is ordered). Any other instruction, kernel or report stays an
error, and so does everything where the library cannot be disassembled.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.sanitize import kernels

FORMS = {"decode_attention_kernel": {"Write": "UBLKCP", "Read": "LDSM"}}
ACCESS = re.compile(r"(?:between|and) (Read|Write) access at (.+)\+0x([0-9a-f]+)(?: \[|$)")
DISPLAYED = re.compile(r"RACECHECK SUMMARY: (\d+) hazards displayed \((\d+) errors, 0 warnings\)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/\s+(?:@!?\w+\s+)?([A-Z0-9_]+)")
DISASSEMBLER = "cuobjdump"


@dataclass(frozen=True)
class Access:
    kind: str
    kernel: str
    place: int


def reports(text: str) -> list[list[Access]]:
    """The accesses of each report of a log."""
    found: list[list[Access]] = []
    for line in text.splitlines():
        access = ACCESS.search(line)
        if access is None:
            continue
        if "Race reported between" in line:
            found.append([])
        if found:
            kind, kernel, place = access.groups()
            found[-1].append(Access(kind, kernels.plain(kernel), int(place, 16)))
    return found


def opcodes_of(disassembly: str) -> dict[int, str]:
    return {int(place, 16): code for place, code in INSTRUCTION.findall(disassembly)}


@cache
def opcodes(library: Path, kernel: str) -> dict[int, str]:
    """Place in the kernel to instruction; empty where it cannot be read."""
    program, names = shutil.which(DISASSEMBLER), kernels.mangled(library)
    plain = [kernels.plain(name) for name in kernels.demangled(names)]
    if program is None or kernel not in plain:
        return {}
    command = [program, "-sass", "-fun", names[plain.index(kernel)], str(library)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return opcodes_of(found.stdout)


def is_understood(
    report: Sequence[Access], opcodes_of_kernel: Callable[[str], dict[int, str]]
) -> bool:
    kernel = report[0].kernel
    form = next((form for name, form in FORMS.items() if f"::{name}<" in kernel), None)
    if form is None or any(access.kernel != kernel for access in report):
        return False
    codes = opcodes_of_kernel(kernel)
    return all(codes.get(access.place) == form[access.kind] for access in report)


def count(text: str, opcodes_of_kernel: Callable[[str], dict[int, str]]) -> int | None:
    """How many reports a log has where each is understood; None where one is not."""
    summaries, found = DISPLAYED.findall(text), reports(text)
    if len(summaries) != 1 or "Potential" in text:
        return None
    displayed, errors = map(int, summaries[0])
    if not found or not displayed == errors == len(found):
        return None
    if not all(is_understood(report, opcodes_of_kernel) for report in found):
        return None
    return len(found)

"""Reports of racecheck that are known to be the tool's, checked instruction by instruction.

Two forms are taken (README.md says why they are ordered): in decode attention, a bulk copy into a
slot of its ring against matrix loads of that slot, and against stores that clear the slot's tail
and that a fence follows before the next barrier in shared memory; in the experts' kernel, a bulk
copy against loads that stand before a barrier of the whole block, behind which the copy stands.
Any other instruction, kernel or report stays an error, and so does everything where the library
cannot be disassembled.
"""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.sanitize import kernels

ACCESS = re.compile(r"(?:between|and) (Read|Write) access at (.+)\+0x([0-9a-f]+)(?: \[|$)")
DISPLAYED = re.compile(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, 0 warnings\)")
INSTRUCTION = re.compile(r"/\*([0-9a-f]+)\*/\s+(@!?\w+\s+)?([A-Z0-9_]+)([^;]*);")
WHOLE_BLOCK = re.compile(r"\.SYNC\S*\s+0x0\s*")
BLOCK_BARRIER = "barrier of the whole block"
FENCE = "FENCE"
SHARED_BARRIER = "SYNCS"
DISASSEMBLER = "cuobjdump"
ARCHITECTURE = "sm_90a"


@dataclass(frozen=True)
class Form:
    read: str
    behind_barrier: bool
    write: str = "UBLKCP"
    fenced_write: str | None = None


FORMS = {
    "decode_attention_kernel": Form("LDSM", behind_barrier=False, fenced_write="STS"),
    "experts_kernel": Form("LDS", behind_barrier=True),
}


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
    codes = {}
    for place, condition, code, operands in INSTRUCTION.findall(disassembly):
        is_block = code == "BAR" and not condition and WHOLE_BLOCK.fullmatch(operands)
        codes[int(place, 16)] = BLOCK_BARRIER if is_block else code
    return codes


@cache
def opcodes(library: Path, kernel: str) -> dict[int, str]:
    """Place in the kernel to instruction; empty where it cannot be read."""
    program, names = shutil.which(DISASSEMBLER), kernels.mangled(library)
    plain = [kernels.plain(name) for name in kernels.demangled(names)]
    if program is None or kernel not in plain:
        return {}
    chosen = ["-arch", ARCHITECTURE, "-fun", names[plain.index(kernel)]]
    command = [program, "-sass", *chosen, str(library)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return opcodes_of(found.stdout)


def is_barrier_between(report: Sequence[Access], codes: dict[int, str]) -> bool:
    """Whether every read stands before a barrier of the block, and every write behind it."""
    last_read = max(access.place for access in report if access.kind == "Read")
    first_write = min(access.place for access in report if access.kind == "Write")
    return any(
        code == BLOCK_BARRIER and last_read < place < first_write for place, code in codes.items()
    )


def is_fenced(place: int, codes: dict[int, str]) -> bool:
    """Whether a fence comes before the next operation on a barrier in shared memory."""
    behind = (codes[other] for other in sorted(codes) if other > place)
    return next((code for code in behind if code in (FENCE, SHARED_BARRIER)), None) == FENCE


def is_of_form(access: Access, form: Form, codes: dict[int, str]) -> bool:
    code = codes.get(access.place)
    if access.kind == "Read":
        return code == form.read
    if code == form.write:
        return True
    return code is not None and code == form.fenced_write and is_fenced(access.place, codes)


def is_understood(
    report: Sequence[Access], opcodes_of_kernel: Callable[[str], dict[int, str]]
) -> bool:
    kernel = report[0].kernel
    form = next((form for name, form in FORMS.items() if f"::{name}<" in kernel), None)
    if form is None or any(access.kernel != kernel for access in report):
        return False
    codes = opcodes_of_kernel(kernel)
    if not all(is_of_form(access, form, codes) for access in report):
        return False
    if all(codes.get(access.place) != form.write for access in report):
        return False
    return not form.behind_barrier or is_barrier_between(report, codes)


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

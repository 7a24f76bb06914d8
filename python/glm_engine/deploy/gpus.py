"""The GPUs that can be asked for, what they cost, and which of them have run the engine."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from glm_engine.errors import BadInputError

FILE = Path(__file__).with_name("gpus.json")
SPELLING = re.compile(r"([A-Z]+\d+)(?::(\d))?")
COUNTS = (1, 2, 4, 8)
HAVE_RUN = "H100:2, H200:1, H200:2 and H200:4"
HOUR = 3600
MIB_IN_GIB = 1024


@functools.cache
def rates():
    """Return the table of prices: dollars, and the day on which they were read."""
    return json.loads(FILE.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Gpu:
    """GPUs of one kind in one host."""

    kind: str
    count: int

    def __str__(self):
        return f"{self.kind}:{self.count}"

    def note(self):
        """Say on which GPUs the engine has run, and whether these are among them."""
        never = "" if str(self) in HAVE_RUN else f", never on {self}"
        return f"the engine has run on {HAVE_RUN}{never}; nothing has run on Modal yet"


def parse_gpu(text):
    """Return the GPUs of a text such as B200:8; BadInputError where there are no such."""
    found = SPELLING.fullmatch(text)
    kinds = rates()["gpus"]
    count = int(found.group(2) or 1) if found else 0
    if count not in COUNTS or found.group(1) not in kinds:
        raise BadInputError(
            f"--gpu: expected {', '.join(kinds)}, with :1, :2, :4 or :8 after it, found {text!r}"
        )
    return Gpu(found.group(1), count)


def dollars_per_hour(gpu, cores, memory_mib):
    """Return what a container costs while it runs; `gpu` is None without one."""
    table = rates()
    cost = cores * table["dollars_per_core_second"]
    cost += memory_mib / MIB_IN_GIB * table["dollars_per_gib_second"]
    if gpu is not None:
        cost += gpu.count * table["gpus"][gpu.kind]["dollars_per_second"]
    return cost * HOUR

"""The GPUs that Modal offers, their prices, and the GPUs that the engine has run on."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from glm_engine.bench.costs import SYNTHETIC, config_path
from glm_engine.core.console import human_bytes
from glm_engine.core.errors import BadInputError
from glm_engine.deploy.program import report_of

FILE = Path(__file__).with_name("gpus.json")
SPELLING = re.compile(r"([A-Z]+\d+)(?::(\d))?")
COUNTS = (1, 2, 4, 8)
HAVE_RUN = "H100:2, H200:1, H200:2 and H200:4"
HOUR = 3600
MIB_IN_GIB = 1024


class GpuRate(TypedDict):
    """A GPU's price and memory."""

    dollars_per_second: float
    memory_gb: int


class Rates(TypedDict):
    """The prices, the day on which they were read, and where."""

    dated: str
    source: str
    gpus: dict[str, GpuRate]
    dollars_per_core_second: float
    dollars_per_gib_second: float


@functools.cache
def rates() -> Rates:
    """Return the table of prices: dollars, and the day on which they were read."""
    table: Rates = json.loads(FILE.read_text(encoding="utf-8"))
    return table


@dataclass(frozen=True)
class Gpu:
    """GPUs of one kind in one host."""

    kind: str
    count: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}"

    def note(self) -> str:
        """Return a sentence about the GPUs that the engine has run on."""
        never = "" if str(self) in HAVE_RUN else f", never on {self}"
        return f"The engine has run on {HAVE_RUN}{never}. It has not run on Modal yet."


def parse_gpu(text: str) -> Gpu:
    """Return the GPUs of a text like B200:8; BadInputError for unknown GPUs."""
    found = SPELLING.fullmatch(text)
    kinds = rates()["gpus"]
    kind, count = (found[1], int(found[2] or 1)) if found else ("", 0)
    if count not in COUNTS or kind not in kinds:
        raise BadInputError(
            f"--gpu: expected one of {', '.join(kinds)} followed by :1, :2, :4 or :8, got {text!r}"
        )
    return Gpu(kind, count)


def dollars_per_hour(gpu: Gpu | None, cores: float, memory_mib: float) -> float:
    """Return the cost of a running container; `gpu` is None without a GPU."""
    table = rates()
    cost = cores * table["dollars_per_core_second"]
    cost += memory_mib / MIB_IN_GIB * table["dollars_per_gib_second"]
    if gpu is not None:
        cost += gpu.count * table["gpus"][gpu.kind]["dollars_per_second"]
    return cost * HOUR


def weights_line(model: str, gpu: Gpu) -> str:
    """Return the size of the weights on each GPU, if the package has the model's config.json."""
    name = model.rpartition("/")[2].lower()
    if name not in SYNTHETIC:
        return f"{model}: the size of its weights is known after the download."
    total = report_of("plan", str(config_path(name)), "--device", "cpu")["checkpoint_bytes"]
    memory = rates()["gpus"][gpu.kind]["memory_gb"]
    each = total / gpu.count
    verdict = "do not fit" if each > memory * 1e9 else "leave room for the KV cache"
    return (
        f"{model}: {human_bytes(total)} of weights, about {human_bytes(each)} on each of "
        f"{gpu.count} {gpu.kind} with {memory} GB; they {verdict}."
    )

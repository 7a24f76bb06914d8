"""Opens the devices that `glm verify` compares, compares them, and reports."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from glm_engine.core.engine import find_gpus
from glm_engine.core.errors import EngineError, EngineLibraryError
from glm_engine.core.libraries import find_backend_library, open_nvrtc
from glm_engine.verify.comparison import CASES, compare, is_lost
from glm_engine.verify.device import Backend, BackendError, Device
from glm_engine.verify.measures import Finding
from glm_engine.verify.model_shape import ModelShape
from glm_engine.verify.rank_cases import NAME, compare_ranks, ranks_per_device

ON_GPU = "Futhark's program on the same GPU"
ON_CPU = "Futhark's program on the CPU, at reduced widths"
REDUCED = "widths are reduced"
TWO_RANKS = "this device is the oracle itself (Futhark's program): two ranks are compared with one"
OWN_GPUS = "two ranks, each with its own GPU, are compared with one"
ONE_GPU = "one GPU: two ranks share it and are compared with one; nothing went from GPU to GPU"
NUM_COMPARISONS = len(CASES) + 1
Advance = Callable[[], None]


@dataclass
class Verification:
    """What was compared with what, and the findings."""

    device: str
    name: str
    oracle: str
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        """The operations that failed, each once."""
        return list(dict.fromkeys(each.operation for each in self.findings if not each.passed))

    @property
    def passed(self) -> bool:
        return bool(self.findings) and not self.failed

    def as_dict(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "name": self.name,
            "oracle": self.oracle,
            "notes": self.notes,
            "operations": [row(each) for each in self.findings],
            "failed": self.failed,
            "passed": self.passed,
        }


def row(found: Finding) -> dict[str, Any]:
    return {
        "operation": found.operation,
        "shape": found.shape,
        "rows": found.rows,
        "error": found.error if np.isfinite(found.error) else None,
        "limit": found.limit,
        "passed": found.passed,
        "message": found.message,
    }


def chosen_kind(device: str) -> str:
    """Return the device kind that `--device` means here."""
    return find_gpus()["device"] if device == "auto" else device


def open_backend(kind: str) -> Backend:
    found = find_backend_library(kind)
    if found is None:
        raise EngineLibraryError(f"libglm_{kind}.so not found beside engine.so")
    if kind == "futhark":
        open_nvrtc()
    try:
        return Backend(kind, found.path)
    except OSError as error:
        raise EngineLibraryError(f"cannot load {found.path}: {error}") from error
    except BackendError as error:
        raise EngineError("verify", error.status, error.text) from error


def open_device(backend: Backend, shape: ModelShape) -> Device:
    try:
        return backend.device(len(os.sched_getaffinity(0)), workspace=shape.workspace())
    except BackendError as error:
        raise EngineError("verify", error.status, error.text) from error


def open_oracle(kind: str, shape: ModelShape) -> tuple[Device, str, list[str]]:
    """Open the oracle of a device kind: what it is, and notes about why it is no other one."""
    notes = []
    if kind == "cuda":
        try:
            return open_device(open_backend("futhark"), shape), ON_GPU, []
        except (EngineError, EngineLibraryError) as error:
            notes.append(f"no oracle on the GPU: {error}")
    return open_device(open_backend("cpu"), shape.reduced()), ON_CPU, notes


def name_of(device: Device) -> str:
    return str(device.info.name.decode("utf-8", "replace"))


def verify_ranks(kind: str, shape: ModelShape) -> Verification:
    """Compare two ranks of the oracle's own device with one."""
    with open_device(open_backend(kind), shape.reduced()) as tested:
        found = compare_ranks(tested, shape.reduced())
        return Verification(kind, name_of(tested), TWO_RANKS, [REDUCED], found)


def verify_device(kind: str, shape: ModelShape, advance: Advance) -> Verification:
    """Compare a device with its oracle, operation by operation, and two ranks of it with one.

    Its library is opened first, because it sets how CUDA loads kernels.
    """
    backend = open_backend(kind)
    with ExitStack() as opened:
        oracle, what, notes = open_oracle(kind, shape)
        opened.enter_context(oracle)
        compared = shape if what == ON_GPU else shape.reduced()
        tested = opened.enter_context(open_device(backend, compared))
        notes.append(OWN_GPUS if ranks_per_device(backend) == 1 else ONE_GPU)
        made = Verification(kind, name_of(tested), what, notes)
        compare_all(made, tested, oracle, compared, advance)
    return made


def compare_all(
    made: Verification, tested: Device, oracle: Device, shape: ModelShape, advance: Advance
) -> None:
    comparisons: dict[str, Callable[[], list[Finding]]] = {
        name: partial(compare, name, case, tested, oracle, shape) for name, case in CASES.items()
    }
    comparisons[NAME] = partial(compare_ranks, tested, shape)
    for number, (name, run) in enumerate(comparisons.items()):
        made.findings += run()
        advance()
        lost = next((each for each in (tested, oracle) if is_lost(each)), None)
        if lost is not None:
            rest = list(comparisons)[number + 1 :]
            what = "device" if lost is tested else "oracle"
            made.notes.append(f"the {what} was lost at {name}; not compared: {', '.join(rest)}")
            return


def table(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """The rows of the table."""
    return [
        (
            each.operation,
            each.shape,
            str(each.rows),
            f"{each.error:.2g}",
            f"{each.limit:.2g}",
            "ok" if each.passed else f"FAILED{f': {each.message}' if each.message else ''}",
        )
        for each in findings
    ]

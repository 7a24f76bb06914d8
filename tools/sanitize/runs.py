"""One process under one tool: its command, its log, what the log says."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.bench.processes import ROOT, child_environment
from tools.sanitize import kernels, understood

TOOLS = ("memcheck", "racecheck", "initcheck")
LIBRARY = "libglm_cuda.so"
LIBRARY_VARIABLE = "GLM_BACKEND_LIBRARY_DIR"
PROGRAM = "compute-sanitizer"
PROGRAM_VARIABLE = "GLM_COMPUTE_SANITIZER"
ERROR_STATUS = 9
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: .*")
NO_ERROR = re.compile(r"SUMMARY: 0 (?:errors|hazards displayed \(0 errors)")
SMOKE_OPTIONS = {"racecheck": ("--timed-tokens", "4")}
SHARE_OPTIONS = {"racecheck": ("--racecheck-num-workers", "2")}
VARIABLES = {"CUDA_MODULE_LOADING": "LAZY", "PYTHONDONTWRITEBYTECODE": "1"}
VISIBLE = "CUDA_VISIBLE_DEVICES"


class MissingToolError(Exception):
    """compute-sanitizer is not there."""


@dataclass(frozen=True)
class Run:
    name: str
    tool: str | None
    command: Sequence[str]
    variables: dict[str, str]
    options: Sequence[str] = ()


@dataclass(frozen=True)
class Outcome:
    name: str
    problem: str | None
    seconds: float
    num_understood: int = 0


def program() -> str:
    wanted = os.environ.get(PROGRAM_VARIABLE, PROGRAM)
    found = shutil.which(wanted)
    if found is None:
        raise MissingToolError(f"expected {wanted} on the PATH (or {PROGRAM_VARIABLE}), got none")
    return found


def under(run: Run) -> list[str]:
    if run.tool is None:
        return list(run.command)
    options = ("--tool", run.tool, "--error-exitcode", str(ERROR_STATUS), "--show-backtrace", "no")
    return [program(), *options, *run.options, *run.command]


def smoke(tool: str) -> Run:
    """Graphs are replayed without their kernels being seen, so this run has none.

    racecheck keeps some 3 GB of host memory a step, hence few tokens.
    """
    glm = (sys.executable, "-m", "glm_engine", "smoke", "--device", "cuda", "--no-graphs")
    return Run(f"{tool} smoke", tool, (*glm, *SMOKE_OPTIONS.get(tool, ())), {})


def library() -> Path:
    return Path(os.environ.get(LIBRARY_VARIABLE, ROOT / "build")) / LIBRARY


def variables_of(run: Run) -> dict[str, str]:
    """Of several GPUs a process sees the first alone, so that ranks share it."""
    first_gpu = os.environ.get(VISIBLE, "0").split(",")[0]
    return VARIABLES | {VISIBLE: first_gpu} | run.variables


def is_understood(text: str) -> bool:
    """Whether all that racecheck reports is of a form that the tool is known to get wrong."""
    try:
        return understood.count(text, partial(understood.opcodes, library())) is not None
    except (OSError, kernels.LibraryError):
        return False


def problem_of(run: Run, status: int, text: str) -> str | None:
    summaries = SUMMARY.findall(text)
    if run.tool is not None and not summaries:
        return f"no summary of the tool, status {status}"
    if run.tool == "racecheck" and status == ERROR_STATUS and is_understood(text):
        return None
    if run.tool is not None and not all(map(NO_ERROR.search, summaries)):
        last: str = summaries[-1]
        return last
    return f"status {status}" if status else None


def ended(run: Run, log: Path, limit: float) -> int | None:
    """The exit status; None after `limit` seconds, when the tool and its target are stopped."""
    with log.open("w") as output:
        process = subprocess.Popen(
            under(run),
            cwd=ROOT,
            env=child_environment(**variables_of(run)),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None


def execute(run: Run, folder: Path, limit: float) -> Outcome:
    log, begin = folder / f"{run.name.replace(' ', '-')}.txt", time.monotonic()
    status = ended(run, log, limit)
    if status is None:
        return Outcome(run.name, f"not done in {limit:.0f} s", limit)
    text = log.read_text(errors="replace")
    problem = problem_of(run, status, text)
    num_understood = len(understood.reports(text)) if problem is None else 0
    return Outcome(run.name, problem, time.monotonic() - begin, num_understood)

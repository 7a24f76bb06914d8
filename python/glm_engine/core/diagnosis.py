"""Checks this machine: interpreter, packages, processor, memory, libraries, devices, tools."""

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path

from glm_engine.core import abi, layout, libraries
from glm_engine.core.bounded_process import clean_environment
from glm_engine.core.console import human_bytes
from glm_engine.core.device_memory import MEMORY_INFO, memory_info
from glm_engine.core.engine import find_gpus
from glm_engine.core.engine_words import for_users
from glm_engine.core.errors import GlmError
from glm_engine.core.files import text_or_nothing
from glm_engine.core.layout import CAPITALS
from glm_engine.core.reports import ANY_GPU
from glm_engine.version import version

X86_64_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
PROCESSOR_FLAGS = re.compile(r"^flags\s*:(.*)$", re.M)
VERSION_LINE = re.compile(r"^.*\d+\.\d+.*$", re.M)
PACKAGES = (
    "click",
    "fastapi",
    "httptools",
    "httpx2",
    "huggingface-hub",
    "jinja2",
    "llguidance",
    "markdown-it-py",
    "msgspec",
    "numpy",
    "orjson",
    "prometheus-client",
    "prompt-toolkit",
    "pydantic",
    "pyzmq",
    "rich",
    "structlog",
    "tokenizers",
    "uvicorn",
    "uvloop",
)
MODULES = {"markdown-it-py": "markdown_it", "pyzmq": "zmq"}
TOOLS = (
    ("cc", "CC", "--version"),
    ("c++", "CXX", "--version"),
    ("futhark", None, "--version"),
    ("terra", None, None),
    ("nvcc", None, "--version"),
    ("scons", None, "--version"),
)
LEAST_CUDA, TOO_OLD = 13000, "too old; the engine needs driver 580 or newer (CUDA 13.0)"
NVRTC = "libnvrtc.so.13"
GET_NVRTC = "install it with `pip install 'glm-engine[futhark]'`"
CAPABILITY_ATTRIBUTES = (75, 76)
UNTESTED = (10, 0)
CAPABILITIES: dict[tuple[int, ...], str] = {
    (9, 0): "",
    UNTESTED: ", CUDA kernels never tested on it: `glm verify --device cuda` does",
}
NVIDIA_LIBRARIES = (
    ("cuBLASLt", "libcublasLt.so.*", ("nvidia/cu13/lib", "nvidia/cublas/lib")),
    ("NCCL", "libnccl.so.*", ("nvidia/nccl/lib",)),
)


@dataclass(frozen=True)
class Finding:
    """One thing that `glm doctor` looks for.

    Commands cannot run without what is `needed`; what is `for_development` only builds and
    measures.
    """

    name: str
    found: bool
    detail: str
    how: str = ""
    needed: bool = False
    for_development: bool = False

    @property
    def state(self) -> str:
        if self.found:
            return "found"
        return "MISSING" if self.needed else "absent"

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "state": self.state}


def diagnose() -> list[Finding]:
    """Return all findings in display order; a wheel leaves out what is for development."""
    return [
        Finding("glm", True, version(), str(layout.PACKAGE), needed=True),
        interpreter(),
        *[package(name) for name in PACKAGES],
        processor(),
        memory(),
        engine_library(),
        *[backend(kind) for kind in libraries.DEVICE_KINDS],
        nvidia_driver(),
        nvrtc(),
        checkpoint(),
        *[tool(*row) for row in TOOLS if not layout.IS_WHEEL],
        *[nvidia_library(*row) for row in NVIDIA_LIBRARIES if not layout.IS_WHEEL],
    ]


def interpreter() -> Finding:
    supported = (3, 11) <= sys.version_info[:2] <= (3, 14)
    detail = platform.python_version() + ("" if supported else "; expected 3.11 to 3.14")
    return Finding("Python", supported, detail, sys.executable, needed=True)


def package(name: str) -> Finding:
    """Look for a package by its name on PyPI; most modules have underscores for the hyphens."""
    found = util.find_spec(MODULES.get(name) or name.replace("-", "_"))
    if found is None:
        return Finding(name, False, "not installed", needed=True)
    return Finding(name, True, metadata.version(name), str(Path(found.origin or "").parent), True)


def processor() -> Finding:
    """Compare the processor with x86-64-v3, for which the CPU libraries are built."""
    machine, cores = platform.machine(), len(os.sched_getaffinity(0))
    detail = f"{machine}, {cores} usable cores"
    flags = PROCESSOR_FLAGS.search(text_or_nothing("/proc/cpuinfo"))
    lacking = [flag for flag in X86_64_V3 if not flags or flag not in flags[1].split()]
    if machine == "x86_64" and lacking:
        detail += f"; expected x86-64-v3, missing {', '.join(lacking)}"
    found = machine == "x86_64" and not lacking
    return Finding("processor", found, detail, "/proc/cpuinfo", needed=True)


def memory() -> Finding:
    found = memory_info()
    if "MemTotal" not in found:
        return Finding("memory", False, "unknown", MEMORY_INFO)
    total, free = (human_bytes(found.get(name, 0)) for name in ("MemTotal", "MemAvailable"))
    return Finding("memory", True, f"{total}, {free} available", MEMORY_INFO)


def engine_library() -> Finding:
    """Check that engine.so loads and has the functions and structs of this package."""
    try:
        found = libraries.find_engine_library()
        libraries.load_engine_library()
    except GlmError as error:
        return Finding("engine.so", False, str(error), needed=True)
    detail = f"{found.path}, {len(abi.FUNCTIONS)} functions"
    return Finding("engine.so", True, detail, found.how, needed=True)


def backend(kind: str) -> Finding:
    name, needed = f"libglm_{kind}.so", kind in ("cpu", "cuda_plan")
    try:
        found = libraries.find_backend_library(kind)
    except GlmError:
        return Finding(name, False, "not found, because engine.so is missing", needed=needed)
    if found is None:
        return Finding(name, False, "not found beside engine.so", needed=needed)
    if kind == ANY_GPU:
        libraries.open_nvrtc()
    try:
        ctypes.CDLL(str(found.path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        advice = f"; for NVRTC, {GET_NVRTC}" if "libnvrtc" in str(error) else ""
        return Finding(name, False, f"cannot load: {error}{advice}", found.how, needed)
    return Finding(name, True, str(found.path), found.how, needed)


def nvidia_driver() -> Finding:
    """Ask the engine for GPUs, and the driver that it opened for their names."""
    name = "NVIDIA driver"
    try:
        found = find_gpus()
    except GlmError as error:
        return Finding(name, False, for_users(error), "reported by engine.so")
    if not found["num_gpus"]:
        how = found["driver"] or "libcuda.so.1 not found"
        return Finding(name, False, "no GPU; --device auto uses the CPU", how)
    driver, newest = ctypes.CDLL(found["driver"]), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(newest))
    devices = ", ".join(gpu(driver, number) for number in range(found["num_gpus"]))
    detail = f"CUDA {newest.value // 1000}.{newest.value % 1000 // 10}: {devices}"
    if newest.value < LEAST_CUDA:
        return Finding(name, False, f"{detail}: {TOO_OLD}", found["driver"])
    chosen = "Futhark's program" if found["device"] == ANY_GPU else "CUDA"
    return Finding(name, True, f"{detail}; --device auto uses {chosen}", found["driver"])


def nvrtc() -> Finding:
    """Look for the compiler of device futhark where that device finds it."""
    libraries.open_nvrtc()
    try:
        ctypes.CDLL(NVRTC)
    except OSError:
        return Finding("NVRTC", False, f"no {NVRTC}; for --device futhark, {GET_NVRTC}")
    return Finding("NVRTC", True, f"{NVRTC}, for --device futhark")


def gpu(driver: ctypes.CDLL, number: int) -> str:
    """Return name and compute capability of a GPU, and whether it has kernels."""
    title = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(title, len(title), number)
    capability = capability_of(driver, number)
    text = f"{title.value.decode()} ({capability[0]}.{capability[1]})"
    return text + CAPABILITIES.get(capability, ", no CUDA kernels for it: use --device futhark")


def capability_of(driver: ctypes.CDLL, number: int) -> tuple[int, ...]:
    """Return the compute capability of a GPU."""
    value, found = ctypes.c_int(), []
    for attribute in CAPABILITY_ATTRIBUTES:
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
        found.append(value.value)
    return tuple(found)


def untested_gpu() -> str | None:
    """Return a line that says how to check a GPU of a kind that was never tested, if one is here.

    The engine must have found the GPUs and opened their driver.
    """
    found = find_gpus()
    if not found["num_gpus"]:
        return None
    driver = ctypes.CDLL(found["driver"])
    kinds = {capability_of(driver, number) for number in range(found["num_gpus"])}
    if UNTESTED not in kinds:
        return None
    return "the engine was never tested on this kind of GPU; `glm verify` checks each operation"


def nvidia_library(name: str, pattern: str, folders: tuple[str, ...]) -> Finding:
    places = [Path(entry or ".", folder) for entry in sys.path for folder in folders]
    for path in (path for place in places for path in sorted(place.glob(pattern))):
        return Finding(name, True, str(path), "Python package", for_development=True)
    return Finding(name, False, "not in any Python package", for_development=True)


def tool(name: str, variable: str | None, version_option: str | None) -> Finding:
    """Look for a build tool: the one that its variable names, else the one on PATH."""
    chosen = os.environ.get(variable) if variable else None
    path = shutil.which(chosen or name)
    if path is None:
        return Finding(name, False, f"{chosen or name} not found", for_development=True)
    how = f"set by {variable}" if chosen else "on PATH"
    detail = f"{path}, {first_version_line(path, version_option)}" if version_option else path
    return Finding(name, True, detail, how, for_development=True)


def first_version_line(path: str, version_option: str) -> str:
    try:
        result = subprocess.run(
            [path, version_option],
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot run: {error}"
    found = VERSION_LINE.search(result.stdout or result.stderr)
    return found[0].strip() if found else "version unknown"


def checkpoint() -> Finding:
    found = (CAPITALS / "config.json").is_file()
    detail = str(CAPITALS) if found else f"no config.json in {CAPITALS}"
    return Finding("capitals", found, detail, "test model of glm smoke")

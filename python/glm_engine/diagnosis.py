"""Looks at the machine: interpreter, processor, memory, tools, libraries, devices."""

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

from glm_engine import abi, layout, libraries
from glm_engine.bounded_process import clean_environment
from glm_engine.console import human_bytes
from glm_engine.engine import find_gpus
from glm_engine.errors import GlmError
from glm_engine.layout import CAPITALS
from glm_engine.version import version

X86_64_V3 = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave")
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
LEAST_CUDA, TOO_OLD = 13000, "too old, device cuda needs CUDA 13.0, which is driver 580"
CAPABILITY_ATTRIBUTES = (75, 76)
CAPABILITIES = {(9, 0): "", (10, 0): ", whose code was compiled and has never run"}
NVIDIA_LIBRARIES = (
    ("cuBLASLt", "libcublasLt.so.*", ("nvidia/cu13/lib", "nvidia/cublas/lib")),
    ("NCCL", "libnccl.so.*", ("nvidia/nccl/lib",)),
)


@dataclass(frozen=True)
class Finding:
    """One thing looked for. `needed`: commands cannot run without it."""

    name: str
    found: bool
    detail: str
    how: str = ""
    needed: bool = False

    @property
    def state(self):
        if self.found:
            return "found"
        return "MISSING" if self.needed else "absent"

    def as_dict(self):
        return {**asdict(self), "state": self.state}


def diagnose():
    """Return all findings, in the order in which they are shown."""
    return [
        Finding("glm", True, version(), str(layout.PACKAGE), needed=True),
        interpreter(),
        *[package(name) for name in PACKAGES],
        processor(),
        memory(),
        engine_library(),
        *[backend(kind) for kind in libraries.DEVICE_KINDS],
        nvidia_driver(),
        *[nvidia_library(*row) for row in NVIDIA_LIBRARIES],
        *[tool(*row) for row in TOOLS],
        checkpoint(),
    ]


def interpreter():
    supported = (3, 11) <= sys.version_info[:2] <= (3, 14)
    detail = platform.python_version()
    if not supported:
        detail += "; 3.11 to 3.14 is needed"
    return Finding("Python", supported, detail, sys.executable, needed=True)


def package(name):
    """A package by its name on PyPI; most modules have it with underscores for the hyphens."""
    found = util.find_spec(MODULES.get(name) or name.replace("-", "_"))
    if found is None:
        return Finding(name, False, "not importable", needed=True)
    return Finding(name, True, metadata.version(name), str(Path(found.origin).parent), True)


def processor():
    """The CPU libraries are built for one instruction set; say what lacks here."""
    machine, cores = platform.machine(), len(os.sched_getaffinity(0))
    detail = f"{machine}, {cores} cores usable"
    lacking = [flag for flag in X86_64_V3 if flag not in processor_flags()]
    if machine == "x86_64" and lacking:
        detail += f"; lacks {', '.join(lacking)} of x86-64-v3"
    found = machine == "x86_64" and not lacking
    return Finding("processor", found, detail, "/proc/cpuinfo", needed=True)


def processor_flags():
    for line in text_of(Path("/proc/cpuinfo")).splitlines():
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return frozenset(flags.split())
    return frozenset()


def memory():
    rows = dict(
        line.split(":", 1) for line in text_of(Path("/proc/meminfo")).splitlines() if ":" in line
    )
    if "MemTotal" not in rows:
        return Finding("memory", False, "unknown", "/proc/meminfo")
    total, free = [
        1024 * int(rows.get(name, "0 kB").split()[0]) for name in ("MemTotal", "MemAvailable")
    ]
    detail = f"{human_bytes(total)}, {human_bytes(free)} available"
    return Finding("memory", True, detail, "/proc/meminfo")


def text_of(path):
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def engine_library():
    """Found means: loads, has every function, and knows this package's structs."""
    try:
        found = libraries.find_engine_library()
        libraries.load_engine_library()
    except GlmError as error:
        return Finding("engine.so", False, str(error), needed=True)
    detail = f"{found.path}, {len(abi.FUNCTIONS)} functions"
    return Finding("engine.so", True, detail, found.how, needed=True)


def backend(kind):
    name, needed = f"libglm_{kind}.so", kind != "cuda"
    try:
        found = libraries.find_backend_library(kind)
    except GlmError:
        return Finding(name, False, "engine.so is not there to look beside", needed=needed)
    if found is None:
        return Finding(name, False, "not built", "looked beside engine.so", needed)
    try:
        ctypes.CDLL(str(found.path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        return Finding(name, False, f"cannot be loaded: {error}", found.how, needed)
    return Finding(name, True, str(found.path), found.how, needed)


def nvidia_driver():
    """The engine's own probe decides; names and capabilities come from the driver it opened."""
    name = "NVIDIA driver"
    try:
        found = find_gpus()
    except GlmError as error:
        return Finding(name, False, str(error), "asked engine.so")
    if not found["num_gpus"]:
        how = found["driver"] or "libcuda.so.1 is not here"
        return Finding(name, False, "no GPU: device auto is the CPU", how)
    driver, newest = ctypes.CDLL(found["driver"]), ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(newest))
    devices = ", ".join(gpu(driver, number) for number in range(found["num_gpus"]))
    detail = f"CUDA {newest.value // 1000}.{newest.value % 1000 // 10}: {devices}"
    if newest.value < LEAST_CUDA:
        return Finding(name, False, f"{detail}: {TOO_OLD}", found["driver"])
    return Finding(name, True, f"{detail}: device auto is CUDA", found["driver"])


def gpu(driver, number):
    """Name and compute capability of one GPU, and whether there are kernels for it."""
    title = ctypes.create_string_buffer(128)
    driver.cuDeviceGetName(title, len(title), number)
    capability = []
    for attribute in CAPABILITY_ATTRIBUTES:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, number)
        capability.append(value.value)
    text = f"{title.value.decode()} ({capability[0]}.{capability[1]})"
    return text + CAPABILITIES.get(tuple(capability), ", which has no kernels here")


def nvidia_library(name, pattern, folders):
    for entry in sys.path:
        for folder in folders:
            for path in sorted(Path(entry or ".", folder).glob(pattern)):
                return Finding(name, True, str(path), "Python package")
    return Finding(name, False, "no Python package holds it", "sys.path")


def tool(name, variable, version_option):
    """A tool is the one its variable names, else the one on PATH."""
    chosen = os.environ.get(variable) if variable else None
    path = shutil.which(chosen or name)
    if path is None:
        return Finding(name, False, f"{chosen or name} is not there", "building only")
    how = f"named by {variable}" if chosen else "on PATH"
    detail = f"{path}, {first_version_line(path, version_option)}" if version_option else path
    return Finding(name, True, detail, how)


def first_version_line(path, version_option):
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
        return f"does not run: {error}"
    lines = [line.strip() for line in (result.stdout or result.stderr).splitlines()]
    telling = [line for line in lines if re.search(r"\d+\.\d+", line)]
    return telling[0] if telling else "version unknown"


def checkpoint():
    found = (CAPITALS / "config.json").is_file()
    detail = str(CAPITALS) if found else f"{CAPITALS} has no config.json"
    return Finding("capitals", found, detail, "checkpoint of the smoke", needed=False)

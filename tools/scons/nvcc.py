"""NVIDIA's toolkit: where it is, what it compiles, and the host side of Futhark's CUDA back end."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from environment import Environment, Node, add_methods, depend_on_version, object_path, tool_version
from SCons.Action import Action
from SCons.Builder import Builder
from SCons.Scanner.C import CScanner

HEADERS = ("cuda.h", "cuda_runtime.h", "nvrtc.h")
ARCHITECTURES = ("90a", "100a")
RUNTIME = "libcudart_static.a"
DEVICE_FLAGS = ["-O3", "-std=c++17", "-Xcompiler", "-fPIC,-fvisibility=hidden"]
SAME_NAMES = "-Xcudafe --orig_src_path_name=$SOURCE -keep -keep-dir ${TARGET}.parts"
COMPILE = (
    "mkdir -p ${TARGET}.parts; "
    f"$NVCC $NVCC_FLAGS $NVCC_ARCHITECTURES {SAME_NAMES} $NATIVE_INCLUDES "
    "$( $CUDA_INCLUDES $) -c -o $TARGET $SOURCE; "
    "status=$$?; rm -r ${TARGET}.parts; exit $$status"
)
NEWEST_MAJOR = 13
TOOLKIT = re.compile(r"^#\$ TOP=(.+)$", re.M)
CUTLASS_PACKAGE = "cutlass_library/source/include"
CUTLASS_HEADER = "cutlass/version.h"
CUTLASS_FLAGS = ["--expt-relaxed-constexpr"]
CUDA_VERSION = re.compile(r"^#define CUDA_VERSION (\d+)", re.M)


def toolkit_folder(env: Environment) -> str | None:
    """The toolkit that the nvcc on the path belongs to, by its own account, or None."""
    nvcc = shutil.which("nvcc", path=env["ENV"]["PATH"])
    if not nvcc:
        return None
    command = [nvcc, "--dryrun", "-x", "cu", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    top = TOOLKIT.search(done.stderr)
    return os.path.normpath(top.group(1)) if top else None


def include_folders(env: Environment) -> list[Path]:
    """Folders that may hold CUDA headers: the toolkit's own, then NVIDIA's Python packages."""
    homes = [os.environ.get("CUDA_HOME"), toolkit_folder(env)]
    packages = [path for base in sys.path for path in Path(base).glob("nvidia/*")]
    folders = [Path(home) / "include" for home in homes if home]
    folders += [path / "include" for path in sorted(packages)]
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def found_headers(folders: Sequence[Path]) -> dict[str, Path]:
    """Where each needed header is; a header that no folder has is missing from the answer."""
    return {
        name: folder / name
        for name in HEADERS
        for folder in reversed(folders)
        if (folder / name).is_file()
    }


def cuda_problem(env: Environment) -> str | None:
    """Why the CUDA host code cannot be compiled here, or None."""
    missing = [name for name in HEADERS if name not in env["CUDA_HEADERS"]]
    return f"CUDA headers not found: {', '.join(missing)}" if missing else None


def toolkit_problem(env: Environment) -> str | None:
    """Why the CUDA device library cannot be built here, or None."""
    if env["NVCC_VERSION"] is None:
        return "nvcc is not on the PATH"
    if env["CUDA_RUNTIME"] is None:
        return f"{RUNTIME} is neither in the toolkit of nvcc nor below CUDA_HOME"
    return cuda_problem(env)


def runtime_library(env: Environment) -> Path | None:
    """CUDA's static runtime: of the toolkit that nvcc belongs to, else below CUDA_HOME, or None."""
    homes = [toolkit_folder(env), os.environ.get("CUDA_HOME")]
    folders = ["targets/x86_64-linux/lib", "lib64", "lib"]
    paths = [Path(home) / folder / RUNTIME for home in homes if home for folder in folders]
    return next((path for path in paths if path.is_file()), None)


def cuda_runtime(env: Environment) -> list[str]:
    """What a library that calls CUDA is linked with: the static runtime and what it asks for."""
    path = shlex.quote(str(env["CUDA_RUNTIME"]))
    return ["$(", path, "$)", "-lm", "-ldl", "-lrt", "-lpthread"]


def header_problem(env: Environment, *names: str) -> str | None:
    """Why code that includes these headers cannot be compiled here, or None."""
    folders = include_folders(env)
    missing = [name for name in names if not any((each / name).is_file() for each in folders)]
    return f"headers not found: {', '.join(missing)}" if missing else None


def cutlass_folder() -> Path | None:
    """CUTLASS's headers: below CUTLASS_HOME, else of the Python package; None without any."""
    home = os.environ.get("CUTLASS_HOME")
    folders = [Path(home) / "include"] if home else []
    folders += [Path(path) / CUTLASS_PACKAGE for path in sys.path]
    return next((each for each in folders if (each / CUTLASS_HEADER).is_file()), None)


def cutlass_version(folder: Path | None) -> str | None:
    """The hash of CUTLASS's own account of its version: an input of what includes it."""
    return hashlib.sha256((folder / CUTLASS_HEADER).read_bytes()).hexdigest() if folder else None


def cutlass_problem(env: Environment) -> str | None:
    """Why code that includes CUTLASS cannot be compiled here, or None."""
    if env["CUTLASS_FOLDER"]:
        return None
    return (
        f"CUTLASS headers not found: expected {CUTLASS_HEADER} below CUTLASS_HOME/include or in "
        "the Python package nvidia-cutlass (run with `tools/develop --with cuda`)"
    )


def device_problem(env: Environment) -> str | None:
    """Why the CUDA device library with all its kernels cannot be built here, or None."""
    return toolkit_problem(env) or cutlass_problem(env)


def cutlass_settings(env: Environment) -> dict[str, list[str]]:
    """What a compilation that includes CUTLASS has beside the others' flags."""
    folder = env["CUTLASS_FOLDER"]
    includes = [shlex.quote(f"-isystem={folder}")] if folder else []
    return {
        "NVCC_FLAGS": env["NVCC_FLAGS"] + CUTLASS_FLAGS,
        "CUDA_INCLUDES": env["CUDA_INCLUDES"] + includes,
    }


def header_version(headers: Mapping[str, Path]) -> str | None:
    """CUDA's version number and the hash of the needed headers: an input of what includes them."""
    if "cuda.h" not in headers:
        return None
    [number] = CUDA_VERSION.findall(headers["cuda.h"].read_text())[:1]
    digest = hashlib.sha256(b"".join(headers[name].read_bytes() for name in sorted(headers)))
    return f"{number} {digest.hexdigest()}"


def cuda_major(env: Environment) -> int:
    """CUDA's major version, which its libraries carry in their names."""
    version: str | None = env["CUDA_VERSION"]
    return int(version.split()[0]) // 1000 if version else NEWEST_MAJOR


def device_objects(
    env: Environment,
    sources: object,
    architectures: Sequence[str] = ARCHITECTURES,
    folder: str = "build/obj",
    **settings: object,
) -> list[Node]:
    """Compiles each .cu file for the given compute capabilities."""
    codes = [f"-gencode=arch=compute_{name},code=sm_{name}" for name in architectures]
    objects: list[Node] = []
    for source in env.Flatten([sources]):
        target = object_path(env, source, folder)
        node = env.NvccObject(target, source, NVCC_ARCHITECTURES=codes, **settings)
        depend_on_version(env, node, "nvcc", env["NVCC_VERSION"])
        depend_on_version(env, node, "native toolchain", env["NATIVE_VERSION"])
        objects.extend(node)
    return objects


def exists(env: Environment) -> bool:
    """True where nvcc is on the path."""
    return shutil.which("nvcc", path=env["ENV"]["PATH"]) is not None


def generate(env: Environment) -> None:
    """Adds DeviceObjects, CudaRuntime, CudaMajor and what may be missing."""
    folders = include_folders(env)
    headers, cutlass = found_headers(folders), cutlass_folder()
    env.Replace(
        CUDA_HEADERS=headers,
        CUDA_INCLUDES=[shlex.quote(f"-I{folder}") for folder in folders],
        CUDA_SYSTEM_INCLUDES=[shlex.quote(f"-isystem{folder}") for folder in folders],
        CUDA_VERSION=header_version(headers),
        CUTLASS_FOLDER=cutlass,
        CUTLASS_VERSION=cutlass_version(cutlass),
        NVCC="nvcc",
        NVCC_EACH=ARCHITECTURES,
        NVCC_FLAGS=DEVICE_FLAGS,
        NVCC_VERSION=tool_version(env, "sh", "-c", "nvcc --version | tail -n 1"),
        CUDA_RUNTIME=runtime_library(env),
    )
    env["BUILDERS"]["NvccObject"] = Builder(
        action=Action(COMPILE, "nvcc $SOURCE"), source_scanner=CScanner()
    )
    add_methods(
        env,
        DeviceObjects=device_objects,
        CudaProblem=cuda_problem,
        ToolkitProblem=toolkit_problem,
        HeaderProblem=header_problem,
        CutlassProblem=cutlass_problem,
        DeviceProblem=device_problem,
        CutlassSettings=cutlass_settings,
        CudaRuntime=cuda_runtime,
        CudaMajor=cuda_major,
    )

"""Finds engine.so and the libraries of devices, and says how each was found."""

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from glm_engine.core import layout
from glm_engine.core.abi import TYPES, declare_functions
from glm_engine.core.engine_words import REINSTALL
from glm_engine.core.errors import EngineLibraryError, variable

VARIABLE = "GLM_ENGINE_LIBRARY"
DEVICE_KINDS = ("cpu", "cuda_plan", "cuda", "futhark")
NVRTC = ("libnvrtc-builtins.so.*", "libnvrtc.so.*")
SPARE_BYTES = 4096


@dataclass(frozen=True)
class FoundLibrary:
    """A library file and the rule by which it was found."""

    path: Path
    how: str


def find_engine_library() -> FoundLibrary:
    """Return the engine.so to load: the variable's, else the layout's."""
    chosen = variable(VARIABLE)
    if chosen is not None:
        if not Path(chosen).is_file():
            raise EngineLibraryError(f"{VARIABLE} names {chosen!r}, which is not a file")
        return FoundLibrary(Path(chosen).resolve(), f"named by {VARIABLE}")
    path = layout.LIBRARIES / "engine.so"
    if path.is_file():
        return FoundLibrary(path, "part of the wheel" if layout.IS_WHEEL else "built here")
    advice = (
        REINSTALL if layout.IS_WHEEL else f"build it with `scons`, or set {VARIABLE} to its path"
    )
    raise EngineLibraryError(f"engine.so not found at {path}; {advice}")


def find_backend_library(kind: str) -> FoundLibrary | None:
    """Return libglm_<kind>.so where engine.so will look for it, or None."""
    name = f"libglm_{kind}.so"
    folder = find_engine_library().path.parent
    for path, how in [(folder / name, "beside engine.so"), (folder.parent / name, "one folder up")]:
        if path.is_file():
            return FoundLibrary(path, how)
    return None


def open_nvrtc() -> None:
    """Load the NVRTC of Python's packages, where there is one: device futhark finds it there."""
    for pattern in NVRTC:
        for folder in sys.path:
            for path in sorted(Path(folder or ".").glob(f"nvidia/*/lib/{pattern}")):
                ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def load_engine_library() -> ctypes.CDLL:
    """Load engine.so and declare its functions; one load serves the process."""
    found = find_engine_library()
    if found.path not in LOADED:
        LOADED[found.path] = load(found.path)
    return LOADED[found.path]


LOADED: dict[Path, ctypes.CDLL] = {}


def load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        declare_functions(library)
    except (OSError, AttributeError) as error:
        raise EngineLibraryError(f"cannot load {path}: {error}") from error
    check_struct_sizes(path, library)
    return library


def check_struct_sizes(path: Path, library: ctypes.CDLL) -> None:
    """Refuse a library whose structs are not this package's, before any is shared."""
    for name in ("engine_options", "engine_request"):
        struct = TYPES[name]
        room = ctypes.create_string_buffer(ctypes.sizeof(struct) + SPARE_BYTES)
        default = getattr(library, name.replace("engine_", "engine_default_"))
        default(ctypes.cast(room, ctypes.POINTER(struct)))
        size = struct.from_buffer(room).struct_size
        if size != ctypes.sizeof(struct):
            raise EngineLibraryError(
                f"{path}: its {name} has {size} bytes, but this package's has "
                f"{ctypes.sizeof(struct)}: they were built from different versions of engine.h"
            )

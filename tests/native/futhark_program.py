"""Futhark's own libraries called by ctypes: entry points with numpy arrays in and out.

`build/libglm_futhark_cpu.so` runs them on the host's cores, `build/libglm_futhark.so` on a GPU,
whose kernels are compiled when the program is opened. Types and names of functions come from the
manifest that Futhark writes beside its code.
"""

import ctypes
import json
from pathlib import Path

import numpy as np

from glm_engine.core.libraries import open_nvrtc
from glm_engine.verify.device import library_path

POINTER = ctypes.c_void_p
SCALARS = {
    "bool": ctypes.c_bool,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
ELEMENTS = {
    "f32": np.float32,
    "i32": np.int32,
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "u64": np.uint64,
}
LIBRARIES = {"cpu": "libglm_futhark_cpu.so", "cuda": "libglm_futhark.so"}


class FutharkError(RuntimeError):
    pass


class Program:
    """A context of one library in `folder`, or in build/. `kind` is "cpu" or "cuda"."""

    def __init__(self, kind: str, num_threads: int = 2, folder: Path | None = None):
        folder = folder or library_path(kind).parent
        if kind == "cuda":
            open_nvrtc()
        manifest = json.loads((folder / f"kernels_{kind}.json").read_text())
        self.types, self.entries = manifest["types"], manifest["entry_points"]
        self.library = ctypes.CDLL(str(folder / LIBRARIES[kind]))
        self.configuration = self.pointer_from("futhark_context_config_new")
        if kind == "cpu":
            set_threads = self.library.futhark_context_config_set_num_threads
            set_threads(self.configuration, num_threads)
        else:
            self.library.futhark_context_config_set_unified_memory(self.configuration, 0)
        self.context = self.pointer_from("futhark_context_new", self.configuration)
        error = self.error()
        if error:
            self.close()
            raise FutharkError(error)

    def close(self) -> None:
        self.library.futhark_context_free(self.context)
        self.library.futhark_context_config_free(self.configuration)

    def pointer_from(self, name: str, *arguments) -> POINTER:
        function = getattr(self.library, name)
        function.restype = POINTER
        return POINTER(function(*arguments))

    def error(self) -> str:
        text = self.pointer_from("futhark_context_get_error", self.context)
        return ctypes.string_at(text).decode() if text.value else ""

    def check(self, where: str, status: int) -> None:
        if status:
            raise FutharkError(f"{where}: {self.error() or f'status {status}'}")

    def synchronise(self, where: str) -> None:
        self.check(where, self.library.futhark_context_sync(self.context))

    def given(self, kind: str, value):
        """An argument as ctypes, and the array that it was made of or None."""
        if kind in SCALARS:
            return SCALARS[kind](value), None
        described = self.types[kind]
        array = np.ascontiguousarray(value, ELEMENTS[described["elemtype"]])
        if array.ndim != described["rank"]:
            raise FutharkError(f"expected {described['rank']} dimensions, got {array.ndim}")
        sizes = [ctypes.c_int64(size) for size in array.shape]
        made = self.pointer_from(
            described["ops"]["new"], self.context, POINTER(array.ctypes.data), *sizes
        )
        if not made.value:
            raise FutharkError(f"{described['ops']['new']}: {self.error()}")
        return made, array

    def release(self, kind: str, handle: POINTER) -> None:
        name = self.types[kind]["ops"]["free"]
        self.check(name, getattr(self.library, name)(self.context, handle))

    def values(self, kind: str, handle: POINTER) -> np.ndarray:
        described = self.types[kind]
        shape_of = getattr(self.library, described["ops"]["shape"])
        shape_of.restype = ctypes.POINTER(ctypes.c_int64)
        shape = shape_of(self.context, handle)[: described["rank"]]
        array = np.empty(shape, ELEMENTS[described["elemtype"]])
        name = described["ops"]["values"]
        read = getattr(self.library, name)
        self.check(name, read(self.context, handle, POINTER(array.ctypes.data)))
        self.synchronise(name)
        return array

    def call(self, entry: str, *arguments):
        """The one result of an entry point, or the tuple of all."""
        described = self.entries[entry]
        kinds = [each["type"] for each in described["inputs"]]
        made = [self.given(kind, value) for kind, value in zip(kinds, arguments, strict=True)]
        results = [POINTER() for _ in described["outputs"]]
        slots = [ctypes.byref(result) for result in results]
        run = getattr(self.library, described["cfun"])
        self.check(entry, run(self.context, *slots, *(handle for handle, _ in made)))
        self.synchronise(entry)
        outputs = [each["type"] for each in described["outputs"]]
        arrays = [self.values(*pair) for pair in zip(outputs, results, strict=True)]
        handles = zip([*kinds, *outputs], [*(each for each, _ in made), *results], strict=True)
        for kind, handle in handles:
            if kind not in SCALARS:
                self.release(kind, handle)
        return arrays[0] if len(arrays) == 1 else tuple(arrays)

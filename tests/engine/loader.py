"""The readers of the debug build, called from tests with plain bytes."""

import ctypes
from functools import cache

from glm_engine.core import abi
from tests.engine.probes import DEBUG_LIBRARY

BUFFER_PROBES = (
    "loader_parse_config",
    "loader_parse_header",
    "loader_parse_index",
    "loader_parse_json",
)


@cache
def library() -> ctypes.CDLL:
    """build/debug/engine.so with the signatures of the readers' probes."""
    loaded = ctypes.CDLL(str(DEBUG_LIBRARY))
    message = ctypes.POINTER(abi.Message)
    for name in BUFFER_PROBES:
        function = getattr(loaded, name)
        function.argtypes = [ctypes.c_char_p, ctypes.c_int64, message]
        function.restype = ctypes.c_int32
    loaded.loader_match_pattern.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.POINTER(ctypes.c_int32),
        message,
    ]
    loaded.loader_match_pattern.restype = ctypes.c_int32
    loaded.loader_read_checkpoint.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_int64),
        message,
    ]
    loaded.loader_read_checkpoint.restype = ctypes.c_int32
    loaded.loader_hash.argtypes = [
        ctypes.c_uint64,
        ctypes.c_uint64,
        ctypes.c_char_p,
        ctypes.c_int64,
    ]
    loaded.loader_hash.restype = ctypes.c_uint64
    loaded.loader_exercise_map.argtypes = [ctypes.c_int64]
    loaded.loader_exercise_map.restype = ctypes.c_int64
    loaded.loader_exercise_arena.argtypes = [ctypes.c_int64, ctypes.c_int64]
    loaded.loader_exercise_arena.restype = ctypes.c_int64
    return loaded


def text_of(message: abi.Message) -> str:
    return message.text.decode("utf-8", "replace")


def parse(probe: str, data: bytes) -> tuple[int, str]:
    """Status and message of one reader for these bytes."""
    message = abi.Message()
    status = getattr(library(), probe)(data, len(data), ctypes.byref(message))
    return status, text_of(message)


def match(pattern: str, name: str) -> bool | str:
    """Whether the pattern matches the name from its start, or why the pattern cannot be read."""
    message, matched = abi.Message(), ctypes.c_int32()
    pattern_bytes, name_bytes = pattern.encode(), name.encode()
    status = library().loader_match_pattern(
        pattern_bytes,
        len(pattern_bytes),
        name_bytes,
        len(name_bytes),
        ctypes.byref(matched),
        ctypes.byref(message),
    )
    return bool(matched.value) if status == 0 else text_of(message)


def read_checkpoint(directory) -> tuple[int, int, str]:
    """Status, number of tensors and message of reading config, index and headers."""
    message, num_tensors = abi.Message(), ctypes.c_int64()
    status = library().loader_read_checkpoint(
        str(directory).encode(), ctypes.byref(num_tensors), ctypes.byref(message)
    )
    return status, num_tensors.value, text_of(message)

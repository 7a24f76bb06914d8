"""The C ABI as native/include/glm/engine.h declares it, and the ctypes made of that.

The tables hold the header's own words, read when this module is imported; test_abi.py has the C
compiler compare every field, offset, size and function type with them. numpy's structured arrays
of the same structs are filled in one call.
"""

import ctypes
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from glm_engine.core.layout import HEADERS

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

StructField = tuple[str, str, *tuple[int, ...]]
StructPointer: TypeAlias = "ctypes._Pointer[ctypes.Structure]"
NUMBER = re.compile(r"\b((?:ENGINE|GLM)_\w+)(?: =)? (\d+)")
OPAQUE = re.compile(r"^typedef struct (\w+) \1;", re.M)
STRUCT = re.compile(r"^typedef struct (\w+) \{(.*?)^\} \1;", re.M | re.S)
FIELD = re.compile(r"(.+) (\w+?)(?:\[(\w+)\])?;")
FUNCTION = re.compile(r"^ENGINE_EXPORT ([^;]+?) (\w+)\((.+?)\);", re.M | re.S)
CALLBACK = re.compile(r"^typedef void \(\*(\w+)\)\((.+?)\);", re.M | re.S)


def fields_of(body: str) -> Iterator[StructField]:
    """Return name, C type and, of an array, the length of each field of a struct."""
    for c_type, name, length in FIELD.findall(body):
        row = name, c_type.strip()
        yield (*row, NUMBERS.get(length) or int(length)) if length else row


def types_of(arguments: str) -> tuple[str, ...]:
    """Return the C types of a function's arguments."""
    return tuple(" ".join(one.split()[:-1]) for one in arguments.split(","))


def named(prefix: str) -> dict[str, int]:
    """Return the enumerators whose names begin so, by the rest of the name in small letters."""
    found = {name: number for name, number in NUMBERS.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix).lower(): number for name, number in found.items()}


def in_order(prefix: str) -> tuple[str, ...]:
    """Return the enumerators whose names begin so as a tuple: a name at the place of its number."""
    found = {number: name for name, number in named(prefix).items()}
    return tuple(found[number] for number in range(len(found)))


HEADER = "\n".join((HEADERS / name).read_text("utf-8") for name in ("status.h", "engine.h"))
NUMBERS = {name: int(number) for name, number in NUMBER.findall(HEADER)}
STRUCTS = {name: list(fields_of(body)) for name, body in STRUCT.findall(HEADER)}
FUNCTIONS = {
    name: (result, *types_of(arguments)) for result, name, arguments in FUNCTION.findall(HEADER)
}
MAX_LOGPROBS = NUMBERS["ENGINE_MAX_LOGPROBS"]
MAX_DRAFT_TOKENS = NUMBERS["ENGINE_MAX_DRAFT_TOKENS"]
EXPERT_LAYOUTS = named("ENGINE_EXPERTS_")
SPECULATE = named("ENGINE_SPECULATE_")
SIZE_SOURCES = in_order("ENGINE_FROM_")
FINISH_REASONS = in_order("ENGINE_FINISH_")
EVENT_TOKEN = NUMBERS["ENGINE_EVENT_TOKEN"]
EVENT_FINISHED = NUMBERS["ENGINE_EVENT_FINISHED"]
EVENT_FAILED = NUMBERS["ENGINE_EVENT_FAILED"]
EVENT_PROMPT_TOKEN = NUMBERS["ENGINE_EVENT_PROMPT_TOKEN"]
KV_STORED = NUMBERS["ENGINE_KV_STORED"]
KV_REMOVED = NUMBERS["ENGINE_KV_REMOVED"]
KV_CLEARED = NUMBERS["ENGINE_KV_CLEARED"]


def make_types() -> dict[str, Any]:
    """Return the ctypes type of every C type that the header mentions, by C name."""
    types: dict[str, Any] = {
        "void": None,
        "void*": ctypes.c_void_p,
        "const char*": ctypes.c_char_p,
        "char": ctypes.c_char,
        "float": ctypes.c_float,
        "double": ctypes.c_double,
        "int32_t": ctypes.c_int32,
        "uint32_t": ctypes.c_uint32,
        "int64_t": ctypes.c_int64,
        "uint64_t": ctypes.c_uint64,
        "glm_status": ctypes.c_int32,
    }
    for name, arguments in CALLBACK.findall(HEADER):
        types[name] = ctypes.CFUNCTYPE(None, *(types[one] for one in types_of(arguments)))
    for name in OPAQUE.findall(HEADER):
        types[name] = type(name, (ctypes.Structure,), {})
    for name, fields in STRUCTS.items():
        members = [
            (field, resolve(types, c_type) * length[0] if length else resolve(types, c_type))
            for field, c_type, *length in fields
        ]
        types[name] = type(name, (ctypes.Structure,), {"_fields_": members})
    return types


def resolve(types: dict[str, Any], c_type: str) -> Any:
    """Return the ctypes type of a C type, pointers to known types included."""
    if c_type not in types:
        if not c_type.endswith("*"):
            raise KeyError(f"engine.h uses the C type {c_type!r}, which it does not declare")
        target = c_type[:-1].removesuffix(" const").removeprefix("const ")
        types[c_type] = ctypes.POINTER(resolve(types, target))
    return types[c_type]


TYPES = make_types()
Message: type[ctypes.Structure] = TYPES["glm_message"]
OptionsStruct: type[ctypes.Structure] = TYPES["engine_options"]
SamplingStruct: type[ctypes.Structure] = TYPES["engine_sampling"]
RequestStruct: type[ctypes.Structure] = TYPES["engine_request"]
MaskStruct: type[ctypes.Structure] = TYPES["engine_mask"]
StepStruct: type[ctypes.Structure] = TYPES["engine_step"]
EventStruct: type[ctypes.Structure] = TYPES["engine_event"]
KvEventStruct: type[ctypes.Structure] = TYPES["engine_kv_event"]
InfoStruct: type[ctypes.Structure] = TYPES["engine_info"]
ProgressFunction = TYPES["engine_progress_function"]
EnginePointer = resolve(TYPES, "glm_engine*")
StatePointer = resolve(TYPES, "engine_state*")
TextPointer = resolve(TYPES, "engine_text*")


def declare_functions(library: ctypes.CDLL) -> None:
    """Give each function of a loaded library its result and argument types."""
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = resolve(TYPES, result)
        function.argtypes = [resolve(TYPES, argument) for argument in arguments]


def as_dict(struct: ctypes.Structure) -> dict[str, Any]:
    """Turn a struct of scalars and texts into a dictionary, `struct_size` left out."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_}
    values.pop("struct_size", None)
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def event_records(count: int, name: str = "engine_event") -> tuple["NDArray[numpy.void]", object]:
    """Return an array for that many of `engine_event`, or of another, and where it lies."""
    import numpy

    records = numpy.zeros(count, record_dtype(name))
    return records, records.ctypes.data_as(ctypes.POINTER(TYPES[name]))


def record_dtype(name: str) -> "numpy.dtype[numpy.void]":
    """Return numpy's type of a struct of numbers and texts: C's offsets, texts as bytes."""
    import numpy

    struct = TYPES[name]
    fields = dict(struct._fields_)
    return numpy.dtype(
        {
            "names": list(fields),
            "formats": [
                f"S{made._length_}" if getattr(made, "_type_", None) is ctypes.c_char else made
                for made in fields.values()
            ],
            "offsets": [getattr(struct, field).offset for field in fields],
            "itemsize": ctypes.sizeof(struct),
        }
    )

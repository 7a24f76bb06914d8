"""The C headers of native/include/glm as ctypes, read from the headers themselves."""

import ctypes
import re
from collections.abc import Iterable
from functools import cache
from typing import Any

from glm_engine.core.layout import HEADERS

SCALARS = {
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "glm_status": ctypes.c_int32,
    "char": ctypes.c_char,
}

Structs = dict[str, type[ctypes.Structure]]
Type = type[Any]
"""A type of ctypes."""

STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.DOTALL)
PROTOTYPE = re.compile(r"GLM_\w+_EXPORT (\w+) (\w+)\((.*?)\);", re.DOTALL)
FUNCTION = re.compile(r"(\w+) \(\*(\w+)\)\((.*?)\)$", re.DOTALL)
FIELD = re.compile(r"(.+?)\s*(\*?)(\w+)(?:\[(\w+)\])?$", re.DOTALL)
CONSTANT = re.compile(r"#define (GLM_\w+) (0x[0-9a-fA-F]+|\d+)")
ENUMERATOR = re.compile(r"(GLM_\w+) = (\d+)")


def header_text(names: Iterable[str] = ("status.h", "backend.h")) -> str:
    return "\n".join((HEADERS / name).read_text() for name in names)


@cache
def constants() -> dict[str, int]:
    """Every numeric #define and enumerator, by name."""
    text = header_text()
    values = {name: int(digits.rstrip("u"), 0) for name, digits in CONSTANT.findall(text)}
    return values | {name: int(digits) for name, digits in ENUMERATOR.findall(text)}


def is_pointer(declaration: str) -> bool:
    return "*" in declaration


def type_of(name: str, structs: Structs) -> Type:
    name = name.replace("const ", "").strip()
    return SCALARS.get(name) or structs[name]


def argument_type(declaration: str, structs: Structs) -> Type:
    if is_pointer(declaration):
        return ctypes.c_void_p
    return type_of(declaration.rsplit(" ", 1)[0], structs)


def function_field(match: re.Match[str], structs: Structs) -> tuple[str, Type]:
    result, name, arguments = match.groups()
    restype = None if result == "void" else type_of(result, structs)
    types = [argument_type(part.strip(), structs) for part in arguments.split(",")]
    return name, ctypes.CFUNCTYPE(restype, *types)


def plain_field(declaration: str, structs: Structs) -> tuple[str, Type]:
    match = FIELD.match(declaration)
    if match is None:
        raise ValueError(f"expected a field of a struct, got {declaration!r}")
    type_name, star, name, length = match.groups()
    if star or is_pointer(type_name):
        return name, ctypes.c_void_p
    base = type_of(type_name, structs)
    if length is None:
        return name, base
    return name, base * (int(length) if length.isdigit() else constants()[length])


def field_of(declaration: str, structs: Structs) -> tuple[str, Type]:
    match = FUNCTION.match(declaration)
    return function_field(match, structs) if match else plain_field(declaration, structs)


@cache
def structs(*names: str) -> Structs:
    """Every struct of the headers, the backend's by default, as a ctypes.Structure, by name."""
    found: Structs = {}
    for name, body in STRUCT.findall(header_text(names) if names else header_text()):
        declarations = [part.strip() for part in body.split(";") if part.strip()]
        fields = [field_of(declaration, found) for declaration in declarations]
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def functions(header: str) -> dict[str, tuple[Type | None, list[Type]]]:
    """The result and the argument types of every exported function of a header, by name."""
    found = {}
    for result, name, arguments in PROTOTYPE.findall(header_text([header])):
        parts = [] if arguments == "void" else arguments.split(",")
        found[name] = SCALARS.get(result), [argument_type(part.strip(), {}) for part in parts]
    return found

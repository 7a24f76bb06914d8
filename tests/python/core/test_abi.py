"""What abi.py reads in the header, by the C compiler's word."""

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from glm_engine.core import abi
from glm_engine.core.errors import Status

ROOT = Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "native" / "include"
HEADER = INCLUDE / "glm" / "engine.h"


@pytest.fixture(scope="module")
def compiler():
    path = shutil.which(os.environ.get("CC") or "cc")
    assert path, "a C compiler is needed to read engine.h"
    return path


def compile_and_run(compiler, folder, source):
    program = folder / "program"
    path = folder / "program.c"
    path.write_text(source)
    flags = ["-std=c11", "-Wall", "-Werror", "-Wno-unused-variable", "-c"]
    compiled = subprocess.run(
        [compiler, *flags, "-I", str(INCLUDE), str(path), "-o", str(folder / "program.o")],
        capture_output=True,
        text=True,
    )
    assert compiled.returncode == 0, compiled.stderr
    subprocess.run([compiler, str(folder / "program.o"), "-o", str(program)], check=True)
    return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout


def source(body, declarations=""):
    return (
        '#include <stddef.h>\n#include <stdio.h>\n#include "glm/engine.h"\n'
        f"{declarations}\nint main(void) {{\n{body}\nreturn 0;\n}}\n"
    )


def test_structs_have_the_compilers_sizes_and_offsets(compiler, tmp_path):
    lines = []
    for name, fields in abi.STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for field, *_ in fields:
            place = f"offsetof({name}, {field}), sizeof((({name}*)0)->{field})"
            lines.append(f'printf("{name}.{field} %zu %zu\\n", {place});')
    printed = compile_and_run(compiler, tmp_path, source("\n".join(lines)))
    assert printed.splitlines() == list(struct_lines())


def struct_lines():
    for name, fields in abi.STRUCTS.items():
        struct = abi.TYPES[name]
        yield f"{name} {ctypes.sizeof(struct)}"
        for field, *_ in fields:
            place = getattr(struct, field)
            yield f"{name}.{field} {place.offset} {place.size}"


def test_fields_have_the_headers_types(compiler, tmp_path):
    checks = []
    for name, fields in abi.STRUCTS.items():
        for field, c_type, *length in fields:
            kind = f"{c_type}[{length[0]}]" if length else c_type
            checks.append(
                f"_Static_assert(__builtin_types_compatible_p("
                f'__typeof__((({name}*)0)->{field}), {kind}), "{name}.{field}");'
            )
    compile_and_run(compiler, tmp_path, source("", "\n".join(checks)))


def test_no_field_of_the_header_is_missing():
    text = HEADER.read_text() + (INCLUDE / "glm" / "status.h").read_text()
    for name, fields in abi.STRUCTS.items():
        body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, re.DOTALL).group(1)
        declared = re.findall(r"(\w+)(?:\[\w+\])?;", body)
        assert declared == [field for field, *_ in fields]


def test_functions_have_the_headers_types(compiler, tmp_path):
    declarations = [f"__typeof__({name})* const check_{name};" for name in abi.FUNCTIONS] + [
        f"_Static_assert(__builtin_types_compatible_p(__typeof__({name}), "
        f'{result} ({", ".join(arguments)})), "{name}");'
        for name, (result, *arguments) in abi.FUNCTIONS.items()
    ]
    compile_and_run(compiler, tmp_path, source("", "\n".join(declarations)))


def test_every_export_is_in_the_table():
    exported = re.findall(r"^ENGINE_EXPORT [^;(]*?(\w+)\(", HEADER.read_text(), re.MULTILINE)
    assert sorted(exported) == sorted(abi.FUNCTIONS)


def test_constants_are_the_headers(compiler, tmp_path):
    names = {
        "ENGINE_MAX_LOGPROBS": abi.MAX_LOGPROBS,
        "ENGINE_MAX_EOS_TOKENS": abi.NUMBERS["ENGINE_MAX_EOS_TOKENS"],
        "ENGINE_EVENT_MESSAGE_CAPACITY": abi.NUMBERS["ENGINE_EVENT_MESSAGE_CAPACITY"],
        "GLM_MESSAGE_CAPACITY": abi.NUMBERS["GLM_MESSAGE_CAPACITY"],
        "ENGINE_EVENT_TOKEN": abi.EVENT_TOKEN,
        "ENGINE_EVENT_FINISHED": abi.EVENT_FINISHED,
        "ENGINE_EVENT_FAILED": abi.EVENT_FAILED,
        "ENGINE_EVENT_PROMPT_TOKEN": abi.EVENT_PROMPT_TOKEN,
    }
    names |= {
        f"ENGINE_EXPERTS_{name.upper()}": number for name, number in abi.EXPERT_LAYOUTS.items()
    }
    names |= {
        f"ENGINE_FINISH_{name.upper()}": number for number, name in enumerate(abi.FINISH_REASONS)
    }
    names |= {status.name: status.value for status in Status}
    body = "\n".join(f'printf("%d\\n", (int){name});' for name in names)
    printed = compile_and_run(compiler, tmp_path, source(body))
    assert dict(zip(names, map(int, printed.split()), strict=True)) == names


def test_every_enumerator_of_the_headers_is_known():
    text = HEADER.read_text() + (INCLUDE / "glm" / "status.h").read_text()
    assert len(re.findall(r"^  GLM_\w+ = \d+", text, re.MULTILINE)) == len(Status)
    assert len(re.findall(r"^  ENGINE_FINISH_\w+ =", text, re.MULTILINE)) == len(abi.FINISH_REASONS)


def test_unknown_c_type_is_named():
    with pytest.raises(KeyError, match="unheard_t"):
        abi.resolve(abi.TYPES, "unheard_t")

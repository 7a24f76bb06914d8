"""IR becomes position-independent object code, the same bytes each time."""

import ctypes
import subprocess

import pytest
from llvmlite_object import object_code

IR = """
@count = global i32 40

declare i64 @strlen(ptr)

define i32 @next() {
  %before = load i32, ptr @count
  %after = add i32 %before, 1
  store i32 %after, ptr @count
  ret i32 %after
}

define i64 @length(ptr %text) {
  %length = call i64 @strlen(ptr %text)
  ret i64 %length
}
"""
TARGET = ("x86_64-pc-linux-gnu", "x86-64-v3")


@pytest.mark.parametrize("level", [0, 3])
def test_object_runs_in_a_shared_library(tmp_path, level):
    (tmp_path / "code.o").write_bytes(object_code(IR, *TARGET, level))
    command = ["gcc", "-shared", "-Wl,-z,text", "-o", "code.so", "code.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "code.so"))
    assert (library.next(), library.next()) == (41, 42)
    assert library.length(b"four") == 4


def test_same_text_gives_the_same_bytes():
    assert object_code(IR, *TARGET, 3) == object_code(IR, *TARGET, 3)


def test_ir_that_is_none_is_refused():
    with pytest.raises(RuntimeError, match="parsing error"):
        object_code("define nothing", *TARGET, 3)

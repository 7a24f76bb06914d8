"""IR is marked for AddressSanitizer function by function, and the marks take effect."""

import shutil

import pytest
from sanitizer import with_attribute

from tests import groups

IR = """define i32 @init_engine(i32 %count) {
  %cells = alloca [4 x i32]
  %place = getelementptr [4 x i32], ptr %cells, i32 0, i32 %count
  store volatile i32 1, ptr %place
  %value = load volatile i32, ptr %place
  ret i32 %value
}
"""
HARNESS = """#include <stddef.h>
#include <stdint.h>

int init_engine(int count);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size > 1 && data[0] == 7) init_engine(data[1] %% %d);
  return 0;
}
"""
CORPUS = "import pathlib, sys\n\npathlib.Path(sys.argv[3], 'seed').write_bytes(b'\\x07\\xff')\n"


@pytest.mark.parametrize(
    ("line", "marked"),
    [
        ("define i32 @f() {", "define i32 @f() sanitize_address {"),
        ("define void @g(ptr %x) #0 {", "define void @g(ptr %x) sanitize_address #0 {"),
        (
            'define dso_local i32 @"$a (b.t:3)"(i32 %0) unnamed_addr #1 !dbg !2 {',
            'define dso_local i32 @"$a (b.t:3)"(i32 %0) unnamed_addr sanitize_address #1 !dbg !2 {',
        ),
        (
            "define void @k(ptr sret(%1) %0, ptr byval(%2) %1, i1 zeroext %2) {",
            "define void @k(ptr sret(%1) %0, ptr byval(%2) %1, i1 zeroext %2) sanitize_address {",
        ),
        ("declare i32 @h()", "declare i32 @h()"),
    ],
)
def test_definitions_are_marked(line, marked):
    assert with_attribute(line, "sanitize_address") == marked


@groups.needs("clang")
@pytest.mark.parametrize(("bound", "status"), [(4, 0), (256, 2)])
def test_overflow_is_found(built_small, bound, status):
    name = "terra/lowered/x86-64-v3/debug.ll"
    before = (built_small.path / name).read_text()
    built_small.write(name, IR)
    built_small.record_lowerings()
    built_small.write("tests/fuzz/cells.c", HARNESS % bound)
    built_small.write("tests/fuzz/corpus.py", CORPUS)
    try:
        printed = built_small.scons("fuzz", status=status)
    finally:
        built_small.write(name, before)
        built_small.record_lowerings()
        shutil.rmtree(built_small.path / "tests/fuzz")
    assert ("stack-buffer-overflow" in printed) == (status != 0)

"""What libglm_cuda.so holds for each compute capability, read from its device code's headers."""

import struct
from collections import Counter
from pathlib import Path

import pytest

from glm_engine.verify.device import library_path

ROOT = Path(__file__).resolve().parents[2]
SECTION = struct.Struct("<IIQQQQ")
SECTION_BYTES = 64
CONTAINER = struct.Struct("<IHHQ")
CONTAINER_MAGIC = 0xBA55ED50
CONTAINER_STEP = 8
IMAGE = struct.Struct("<HHIQ12xI")
HOPPER, BLACKWELL = 90, 100
FOR_EACH = ("sm90a_decode_attention.cu", "sm90a_route.cu")


def device_code(content: bytes) -> bytes:
    """The section .nv_fatbin of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", content, 0x28)
    count, names = struct.unpack_from("<HH", content, 0x3C)
    sections = [SECTION.unpack_from(content, table + SECTION_BYTES * i) for i in range(count)]
    for name, _, _, _, offset, size in sections:
        if content.startswith(b".nv_fatbin\0", sections[names][4] + name):
            return content[offset : offset + size]
    raise AssertionError("expected a section .nv_fatbin, got none")


def architectures(code: bytes) -> Counter:
    """How often a source file was compiled for each set of capabilities."""
    found, place = Counter(), 0
    while place + CONTAINER.size <= len(code):
        magic, _, header, size = CONTAINER.unpack_from(code, place)
        if magic != CONTAINER_MAGIC:
            place += CONTAINER_STEP
            continue
        at, end, images = place + header, place + header + size, set()
        while at < end:
            _, _, header, size, architecture = IMAGE.unpack_from(code, at)
            images.add(architecture)
            at += header + size
        found[frozenset(images)] += 1
        place = end
    return found


def expected_of(source: Path) -> frozenset[int]:
    if source.name.startswith("sm100a_"):
        return frozenset({BLACKWELL})
    if source.name.startswith("sm90a_") and source.name not in FOR_EACH:
        return frozenset({HOPPER})
    return frozenset({HOPPER, BLACKWELL})


def test_each_source_is_compiled_for_its_capabilities():
    library = library_path("cuda")
    if not library.is_file():
        pytest.skip("libglm_cuda.so is not built: scons cuda makes it (tools/develop --with cuda)")
    folders = (ROOT / "native/kernels", ROOT / "native/collectives")
    sources = [source for folder in folders for source in folder.glob("*/*.cu")]
    expected = Counter(map(expected_of, sources))
    assert architectures(device_code(library.read_bytes())) == expected

"""Which kernels have blocks that wait for other blocks, or for other ranks.

Ranks that share a GPU count on these (native/collectives/peer/README.md): a kernel that waited for
another rank in another place would wait in their common stream for what comes after it.
"""

from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "native"
WAITS = {
    "native/ptx/device_flags.hpp": {"kernels/experts"},
    "native/collectives/peer/wait.hpp": {"collectives/peer"},
    "native/collectives/peer/send_receive.hpp": {"kernels/reduce_add_norm_quantise"},
}


def folders_that_include(header: str) -> set[str]:
    sources = [path for path in NATIVE.rglob("*") if path.suffix in (".cu", ".hpp", ".cpp")]
    return {
        path.parent.relative_to(NATIVE).as_posix()
        for path in sources
        if f'#include "{header}"' in path.read_text()
    }


def test_no_other_kernel_waits_for_blocks_or_ranks():
    assert {header: folders_that_include(header) for header in WAITS} == WAITS


def test_no_kernel_is_launched_to_wait_for_its_whole_grid():
    cooperative = (
        "cudaLaunchCooperativeKernel",
        "cooperative_groups",
        "LaunchAttributeCooperative",
    )
    for path in (path for path in NATIVE.rglob("*.*") if path.suffix in (".cu", ".hpp", ".cpp")):
        assert not any(word in path.read_text() for word in cooperative), path

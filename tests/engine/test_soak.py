"""Load, 50 requests, free, from C: no error, and under valgrind no leak."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.engine.probes import DEBUG_LIBRARY, ROOT
from tests.reference.capitals import CAPITALS

SOAK = ROOT / "build" / "tests" / "soak"
RELEASE_LIBRARY = ROOT / "build" / "engine.so"
NUM_REQUESTS = 50
VALGRIND = [
    "valgrind",
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite,indirect,possible",
    f"--suppressions={Path(__file__).with_name('valgrind.supp')}",
]


def run_soak(*, library, world_size, wrapper=()):
    command = [*wrapper, SOAK, library, CAPITALS, NUM_REQUESTS, world_size]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"finished {NUM_REQUESTS} " in done.stdout
    return done


needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None,
    reason="valgrind is not on the PATH (Debian: valgrind, libc6-dbg), and no group brings it",
)


@pytest.mark.parametrize("library", [RELEASE_LIBRARY, DEBUG_LIBRARY], ids=["release", "debug"])
@pytest.mark.parametrize("world_size", [1, 2])
def test_fifty_requests_from_c(library, world_size):
    run_soak(library=library, world_size=world_size)


@needs_valgrind
@pytest.mark.timeout(900)
@pytest.mark.parametrize("world_size", [1, 2])
def test_fifty_requests_under_valgrind_leave_nothing(world_size):
    done = run_soak(library=RELEASE_LIBRARY, world_size=world_size, wrapper=VALGRIND)
    assert done.stderr == ""


@needs_valgrind
def test_a_failed_load_under_valgrind_leaves_nothing(tmp_path):
    broken = shutil.copytree(CAPITALS, tmp_path / "broken")
    shard = sorted(broken.glob("*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:-1000])
    command = [*VALGRIND, SOAK, RELEASE_LIBRARY, broken, NUM_REQUESTS, 2]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr[-4000:]
    assert "extend past the end" in done.stderr

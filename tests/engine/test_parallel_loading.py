"""Ranks load at the same time, and together read each byte of a checkpoint from the disk once.

What the disk gave is `read_bytes` of /proc/self/io, after the kernel was told to forget the files.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glm_engine.core.engine import Engine, EngineOptions
from tests.engine.failing_device import FOLDER, arm, library
from tests.reference.capitals import CAPITALS
from tools.bench.processes import child_environment

SLACK_BYTES = 2**20
SPLITS = [
    (world_size, layout)
    for world_size in (1, 2, 4, 8)
    for layout in ("tensor_parallel", "expert_parallel")
]
MEASURE = """
import json, sys
from pathlib import Path
from tools.bench.loading import forget, load, read_by

def counted(act):
    forget(cold)
    return read_by(act)

def split(world_size, layout):
    ranks = {"world_size": world_size, "expert_layout": layout}
    return counted(lambda: load(cold, device="cpu", num_threads=1, **ranks))

warm, cold, splits = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
load(warm, device="cpu")
plainly = counted(lambda: [path.read_bytes() for path in cold.iterdir()])
print(json.dumps([plainly, [split(*each) for each in splits]]))
"""


def measured(cold: Path) -> tuple[int, list[int]]:
    """Bytes from the disk for reading the files plainly, and for loading them at each split."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(CAPITALS), str(cold), json.dumps(SPLITS)],
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return tuple(json.loads(done.stdout))


def test_each_byte_is_read_once_whatever_the_number_of_ranks(tmp_path):
    cold = tmp_path / "cold"
    shutil.copytree(CAPITALS, cold)
    weights = sum(path.stat().st_size for path in cold.glob("*.safetensors"))
    plainly, counts = measured(cold)
    if plainly < weights:
        pytest.skip(f"{tmp_path} lies on no disk: of {weights} bytes {plainly} were read from it")
    for split, count in zip(SPLITS, counts, strict=True):
        assert weights <= count <= weights + SLACK_BYTES, (split, count, weights)


@pytest.mark.parametrize("world_size", [2, 8])
def test_all_ranks_place_their_weights_at_the_same_time(world_size):
    arm()
    library().failing_let_meet(world_size)
    options = {"device": "cpu", "library_dir": FOLDER, "max_batch": 1, "max_seq": 64}
    try:
        with Engine(EngineOptions(CAPITALS, world_size=world_size, **options)):
            assert library().failing_num_met() == world_size
    finally:
        library().failing_let_meet(0)

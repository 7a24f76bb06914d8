"""Whole checkpoints with random damage in config, index and headers: a status each, no crash.

`GLM_MUTATIONS` sets how many are tried.
"""

import os
import random
from pathlib import Path

from glm_engine.core.engine import inspect_checkpoint
from glm_engine.core.errors import EngineError, Status
from tests.engine import tamper

NUM_MUTATIONS = int(os.environ.get("GLM_MUTATIONS", "300"))
INTERESTING = [b"0", b"-1", b"9" * 19, b'"', b"{", b"}", b"[", b"]", b",", b"\\u0000", b"1e9", b""]
KNOWN = {
    Status.GLM_OK,
    Status.GLM_INVALID_CHECKPOINT,
    Status.GLM_NOT_SUPPORTED,
    Status.GLM_NOT_FOUND,
}


def mutate(data: bytes, rng: random.Random, limit: int) -> bytes:
    """Replaces, swaps or cuts a few pieces among the first `limit` bytes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        begin = rng.randrange(min(limit, len(changed)) or 1)
        end = begin + rng.choice([0, 1, 1, 2, 8])
        kind = rng.randrange(3)
        if kind == 0:
            changed[begin:end] = rng.choice(INTERESTING)
        elif kind == 1:
            changed[begin:end] = rng.randbytes(end - begin)
        else:
            source = rng.randrange(limit)
            changed[begin:end] = changed[source : source + end - begin]
    return bytes(changed)


def header_end(data: bytes) -> int:
    return min(len(data), 8 + int.from_bytes(data[:8], "little"))


def read(directory: Path) -> tuple[int, list[str]]:
    """Status and messages of reading the checkpoint."""
    try:
        problems = inspect_checkpoint(directory)["problems"]
    except EngineError as error:
        return error.status, [str(error)]
    return Status.GLM_OK, [problem["message"] for problem in problems]


def judge(directory: Path) -> str:
    """How the checkpoint was judged: sound, with problems, or refused."""
    status, messages = read(directory)
    assert status in KNOWN, messages
    assert all(messages)
    if status != Status.GLM_OK:
        return "refused"
    return "problems" if messages else "sound"


def test_random_damage(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model", num_hidden_layers=2, n_routed_experts=2)
    originals = {path: path.read_bytes() for path in sorted(directory.iterdir())}
    limits = {
        path: header_end(data) if path.suffix == ".safetensors" else len(data)
        for path, data in originals.items()
    }
    counts: dict[str, int] = {}
    rng = random.Random(20)
    for _ in range(NUM_MUTATIONS):
        path = rng.choice(list(originals))
        path.write_bytes(mutate(originals[path], rng, limits[path]))
        verdict = judge(directory)
        counts[verdict] = counts.get(verdict, 0) + 1
        path.write_bytes(originals[path])
    assert judge(directory) == "sound"
    assert counts["refused"] + counts["problems"] > NUM_MUTATIONS // 2, counts

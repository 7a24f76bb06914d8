"""What `bits memory` opens, and the hash of each rank's weights after loading.

The probe `engine_hash_weights` hashes every byte of a rank's weights, also between the matrices:
`allocate` gives zeroed memory, so bytes that are never written are zero. Only the debug build has
the probe.
"""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from glm_engine.core import abi
from glm_engine.core.engine import Engine, call
from glm_engine.core.errors import BadInputError
from glm_engine.core.libraries import VARIABLE, find_engine_library
from tools.bench.bits_models import CPU_RANKS, Model, Run, models, runs_of_ranks
from tools.bench.processes import ROOT

PROBE = "engine_hash_weights"
DEBUG_LIBRARY = ROOT / "build" / "debug" / "engine.so"
MODELS = ROOT / "tests" / "data" / "bits" / "memory-models.json"
FULL_WIDTH = Model(
    "fp8_air_full_width",
    synthetic="python/glm_engine/configs/glm-4.5-air-fp8.json",
    num_layers=4,
    most_ranks=8,
)
SMALLEST_ENGINE = {
    "max_batch": 1,
    "max_logit_rows": 1,
    "max_seq": 64,
    "max_step_tokens": 64,
    "page_size": 16,
    "num_pages": 8,
    "step_budget_ms": 0,
    "graphs": False,
}
LOADED, RANDOM = "loaded", "random"


def memory_models(with_full_width: bool) -> list[Model]:
    """The ledger's models, models with tied embeddings and, if wanted, the cut at full width."""
    return [*models(), *models(MODELS), *([FULL_WIDTH] if with_full_width else [])]


def memory_runs(model: Model, device: str, num_gpus: int) -> Iterator[Run]:
    """Each number of ranks and layout of experts, with weights from files and drawn at random."""
    sources = (RANDOM,) if model.synthetic else (LOADED, RANDOM)
    for world_size in CPU_RANKS if device == "cpu" else (num_gpus,):
        for run in runs_of_ranks(world_size) if world_size <= model.most_ranks else ():
            for source in sources:
                options = run.options | SMALLEST_ENGINE | {"synthetic": source == RANDOM}
                yield Run(f"{model.name} {device} {run.label} {source}", options)


@contextmanager
def debug_library() -> Iterator[Path]:
    """Let `Engine` load the debug build, unless GLM_ENGINE_LIBRARY names another library."""
    own = VARIABLE not in os.environ
    if own:
        os.environ[VARIABLE] = str(DEBUG_LIBRARY)
    try:
        yield find_engine_library().path
    finally:
        if own:
            del os.environ[VARIABLE]


def weights_of(engine: Engine, num_bytes: int = 0) -> dict[str, str]:
    """The bytes of one rank's weights, and the hash of each rank's, or of their first `num_bytes`.

    Raises `BadInputError` for a library without the probe.
    """
    if not hasattr(engine.library, PROBE):
        path = find_engine_library().path
        raise BadInputError(f"{path} is not the debug build: it has no function {PROBE}")
    num_ranks = engine.info()["world_size"]
    hashes = (ctypes.c_uint64 * num_ranks)()
    sizes = (ctypes.c_int64 * num_ranks)(*[num_bytes] * num_ranks)
    getattr(engine.library, PROBE).argtypes = [
        abi.EnginePointer,
        ctypes.POINTER(ctypes.c_uint64),
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(abi.Message),
    ]
    call(engine.library, PROBE, engine.handle, hashes, sizes)
    by_rank = {f"rank {rank}": f"{value:016x}" for rank, value in enumerate(hashes)}
    return {"bytes": " ".join(str(size) for size in sorted(set(sizes)))} | by_rank

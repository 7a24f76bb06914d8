"""The plan that needs no CUDA library says what the CUDA library says, and what Python derives.

`libglm_cuda_plan.so` and `libglm_cuda.so` link the same objects. The first test gives the CUDA
library the other's name in a folder of its own, so that `engine_plan` opens it, and compares whole
texts. On a GPU (`--device-kind cuda`) it also compares plans for the GPU that is opened.
"""

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import EngineOptions, plan
from glm_engine.core.errors import EngineError
from glm_engine.verify.device import Backend, address
from glm_engine.verify.header import structs
from tests.devices import device_kind
from tests.engine.probes import ROOT
from tests.shapes import PRIME, TILE, generator, seed_note
from tools.checkpoint.random_model import small_config

BUILD = ROOT / "build"
CONFIGS = ROOT / "python" / "glm_engine" / "configs"
LARGE = [CONFIGS / name for name in ("glm-4.5-air-fp8.json", "glm-4.7-fp8.json")]
CUDA, PLANNED = BUILD / "libglm_cuda.so", "libglm_cuda_plan.so"
needs_cuda = pytest.mark.skipif(
    not CUDA.is_file(), reason=f"{CUDA.name} is not built: scons cuda makes it"
)
NUM_PLANS, NUM_SHAPES, NUM_OPENED, BATCH = 500, 500, 20, 50
WIDTHS = (1, 8, PRIME, TILE, TILE + 1, 96, 128, 129, 1408, 5120)
LIMITS = (16384, 16392, 65536, 65544)
COUNTS = (0, 1, 2, PRIME, TILE, TILE + 1, 127, 128, 129, 2**20, 2**31 - 1)
F32, BF16, FP8 = range(3)
GATE_UP = 1
ELEMENT = {F32: 4, BF16: 2, FP8: 1}


def drawn(random: np.random.Generator, values):
    return values[int(random.integers(len(values)))]


def usual(random: np.random.Generator, values, limits):
    """One of the usual values, and one time in sixteen a limit of the device or past it."""
    return drawn(random, limits if random.integers(16) == 0 else values)


def drawn_config(random: np.random.Generator) -> dict:
    """A config whose sizes are 1, primes, one past a tile, or limits of the device."""
    kv_heads = drawn(random, (1, 2, 4, 8))
    experts = usual(random, (1, 2, 8, 64, 128), (255, 256, 257))
    return small_config(
        fp8=bool(random.integers(2)),
        hidden_size=usual(random, WIDTHS, LIMITS),
        intermediate_size=usual(random, WIDTHS, LIMITS),
        moe_intermediate_size=drawn(random, WIDTHS),
        head_dim=usual(random, (4, 12, 64, 128, 192), (256, 320)),
        num_key_value_heads=kv_heads,
        num_attention_heads=kv_heads * usual(random, (1, 3, 8, 12), (16, 17)),
        n_routed_experts=experts,
        num_experts_per_tok=min(experts, usual(random, (1, 2, 8), (32, 33))),
        n_shared_experts=drawn(random, (0, 1)),
        vocab_size=usual(random, (1, PRIME, TILE + 1, 151552), (196608, 196609)),
        eos_token_id=[0],
        num_hidden_layers=drawn(random, (1, 2, PRIME)),
        first_k_dense_replace=drawn(random, (0, 1)),
        max_position_embeddings=drawn(random, (1, PRIME, 4096, 131072)),
        torch_dtype=usual(random, ("bfloat16",), ("float32",)),
    )


def drawn_options(random: np.random.Generator) -> dict:
    """Options of a plan; None leaves the choice to the engine, as does a world size of 0."""
    return {
        "world_size": drawn(random, (0, 1, 1, 2, 4, 8)),
        "device_memory_bytes": int(10 ** random.uniform(8, 13)),
        "kv_dtype": drawn(random, (None, BF16, FP8)),
        "max_batch": drawn(random, (None, None, 1, PRIME, TILE + 1, 256)),
        "max_seq": drawn(random, (None, None, 1, PRIME, TILE + 1, 4096)),
        "num_pages": usual(random, (None,), (1, 1000)),
        "page_size": usual(random, (None, 16, 48), (8,)),
        "max_step_tokens": drawn(random, (None, None, 513, 8192)),
        "expert_layout": drawn(random, (None, "tensor_parallel", "expert_parallel")),
        "ranks_per_device": usual(random, (None,), (1, 2)),
    }


def answer(path: Path, library_dir: Path, options: dict) -> str:
    """The plan as text, or the status and text of its refusal."""
    stated = {name: value for name, value in options.items() if value is not None}
    try:
        return json.dumps(plan(EngineOptions(path, library_dir=library_dir, **stated)))
    except EngineError as error:
        return f"{error.status} {error}"


@pytest.fixture(scope="module")
def cuda_folder(tmp_path_factory) -> Path:
    """A folder in which the library of plans is the CUDA library itself."""
    folder = tmp_path_factory.mktemp("cuda")
    (folder / PLANNED).symlink_to(CUDA)
    for path in BUILD.glob("lib*wrap.so"):
        (folder / path.name).symlink_to(path)
    return folder


@needs_cuda
@pytest.mark.parametrize("begin", range(0, NUM_PLANS, BATCH))
def test_plans_are_those_of_the_cuda_library(begin, cuda_folder, tmp_path):
    print(seed_note())
    config = tmp_path / "config.json"
    num_fitting = 0
    for index in range(begin, begin + BATCH):
        random = generator("plans", index)
        path = drawn(random, (config, config, config, *LARGE))
        config.write_text(json.dumps(drawn_config(random)), encoding="utf-8")
        options = drawn_options(random)
        expected = answer(path, cuda_folder, options)
        assert answer(path, BUILD, options) == expected, (index, path.name, options)
        num_fitting += '"fits": true' in expected
    assert num_fitting > BATCH // 10


@needs_cuda
@pytest.mark.parametrize("options", [{}, {"kv_dtype": FP8, "max_batch": PRIME, "max_seq": 4096}])
@pytest.mark.parametrize("path", LARGE, ids=lambda path: path.stem)
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_plans_of_published_models_are_those_of_the_cuda_library(
    path, world_size, options, cuda_folder
):
    given = {**options, "world_size": world_size, "device_memory_bytes": 141 * 10**9}
    assert answer(path, BUILD, given) == answer(path, cuda_folder, given)


def drawn_matrix(random: np.random.Generator):
    dtype, role = int(random.integers(-1, 4)), int(random.integers(-1, 4))
    return structs()["glm_matrix"](dtype, role, drawn(random, COUNTS), drawn(random, COUNTS))


def drawn_cache(random: np.random.Generator):
    sizes = [drawn(random, COUNTS[:-2]) for _ in range(4)]
    return structs()["glm_kv_cache"](int(random.integers(0, 4)), *sizes, drawn(random, (64, 128)))


def bytes_of(backend: Backend, function: str, struct) -> tuple[int, int]:
    """The status of a function that sizes a struct, and its answer."""
    size = ctypes.c_int64(-1)
    status = getattr(backend.table, function)(address(struct), address(size))
    return status, size.value


@needs_cuda
@pytest.mark.parametrize(
    ("function", "draw"), [("matrix_bytes", drawn_matrix), ("kv_page_bytes", drawn_cache)]
)
def test_sizes_are_those_of_the_cuda_library(function, draw):
    print(seed_note())
    ours, theirs = Backend("cuda_plan"), Backend("cuda")
    for index in range(NUM_SHAPES):
        struct = draw(generator(function, index))
        assert bytes_of(ours, function, struct) == bytes_of(theirs, function, struct), index


def ceil_divide(value: int, divisor: int) -> int:
    return -(-value // divisor)


def packed_bytes(dtype: int, role: int, rows: int, columns: int) -> int:
    """Tiles of 128 rows of 128 bytes; gate and up alternate by eight rows."""
    packed_rows = 2 * 8 * ceil_divide(rows // 2, 8) if role == GATE_UP else rows
    return ceil_divide(packed_rows, 128) * ceil_divide(columns * ELEMENT[dtype], 128) * 128 * 128


@pytest.mark.parametrize("dtype", ELEMENT)
@pytest.mark.parametrize("role", [0, GATE_UP])
def test_bytes_of_a_packed_matrix(dtype, role):
    backend = Backend("cuda_plan")
    for rows in (0, 2, 14, 16, 18, 126, 128, 130, 27648):
        for columns in (0, 1, PRIME, TILE, TILE + 1, 127, 128, 129, 5120):
            struct = structs()["glm_matrix"](dtype, role, rows, columns)
            expected = packed_bytes(dtype, role, rows, columns)
            assert bytes_of(backend, "matrix_bytes", struct) == (0, expected), (rows, columns)


@pytest.mark.parametrize("dtype", [BF16, FP8])
def test_bytes_of_a_page(dtype):
    backend = Backend("cuda_plan")
    for layers in (0, 1, PRIME, 92):
        for heads in (0, 1, 8):
            for dim in (1, TILE, TILE + 1, 128, 129, 256):
                struct = structs()["glm_kv_cache"](dtype, layers, 1, 48, heads, dim)
                row = 128 * ceil_divide(dim * ELEMENT[dtype], 128)
                expected = 2 * layers * heads * 48 * row
                assert bytes_of(backend, "kv_page_bytes", struct) == (0, expected), dim


def test_a_plan_opens_no_cuda_library(tmp_path):
    (tmp_path / PLANNED).symlink_to(BUILD / PLANNED)
    given = {"world_size": 4, "device_memory_bytes": 141 * 10**9}
    alone = answer(LARGE[1], tmp_path, given)
    planned = json.loads(alone)
    assert (planned["device"], planned["fits"], len(planned["ranks"])) == ("cuda", True, 4)
    assert alone == answer(LARGE[1], BUILD, {**given, "device": "cuda"})


@needs_cuda
@pytest.mark.skipif(device_kind() != "cuda", reason="this opens a GPU: --device-kind cuda")
def test_plans_are_those_for_a_gpu_that_is_opened(tmp_path):
    print(seed_note())
    config = tmp_path / "config.json"
    num_planned = 0
    for index in range(20 * NUM_OPENED):
        random = generator("opened", index)
        config.write_text(json.dumps(drawn_config(random)), encoding="utf-8")
        options = {"world_size": 1, "kv_dtype": FP8, "max_batch": 1 + int(random.integers(64))}
        options["max_seq"] = 1 + int(random.integers(4096))
        opened = answer(config, BUILD, {**options, "device": "cuda"})
        if not opened.startswith("{"):
            continue
        memory = json.loads(opened)["memory_free_bytes"]
        assert answer(config, BUILD, {**options, "device_memory_bytes": memory}) == opened, index
        num_planned += 1
        if num_planned == NUM_OPENED:
            break
    assert num_planned == NUM_OPENED

"""Context and batch that nobody states: the model's own, or what the memory holds and no less."""

import ctypes
import json
from pathlib import Path

import pytest

from glm_engine.core import abi
from glm_engine.core.console import batch_line, context_line, cut_line
from glm_engine.core.engine import Engine, EngineOptions, Request, plan
from glm_engine.core.errors import Status
from glm_engine.core.layout import CONFIGS
from glm_engine.core.libraries import load_engine_library
from tests.engine import tamper
from tests.engine.running import run_requests
from tests.nvidia_driver import skip_where_a_gpu_is

ROOT = Path(__file__).resolve().parents[2]
BF16_CONFIGS = ROOT / "tests" / "data" / "configs"
PUBLISHED = sorted([*CONFIGS.glob("*.json"), *BF16_CONFIGS.glob("*.json")])
AIR = CONFIGS / "glm-4.5-air-fp8.json"
GLM = CONFIGS / "glm-4.7-fp8.json"
PLENTY = 2**50
H200_BYTES = 141_000_000_000
PAGE_SIZE = 16
USUAL_TOKENS = 512
CPU_BATCH = 64
POSITIONS = 100_000


def plan_of(model: Path, **options) -> dict:
    """The plan within a limit for a device with so much, else for this machine's memory."""
    memory = options.get("memory_limit_bytes", 0)
    return plan(EngineOptions(model, device="cpu", device_memory_bytes=memory, **options))


def expect_the_most_that_fits(model: Path, **memory) -> dict:
    """The plan of a model whose context and batch are left to the engine, checked by asking.

    A context that the memory cut fits when it is asked for, and one more page of it does not.
    """
    planned = plan_of(model, **memory)
    assert planned["fits"] is True, planned["reason"]
    own = json.loads(model.read_text(encoding="utf-8"))["max_position_embeddings"]
    assert planned["model_max_seq"] == own
    assert (planned["max_seq"] == own) == (planned["max_seq_from"] == "model")
    asked = {**memory, "max_batch": planned["max_batch"]}
    assert plan_of(model, **asked, max_seq=planned["max_seq"])["fits"] is True
    if planned["max_seq_from"] != "model":
        assert planned["max_seq_from"] == "memory"
        longer = plan_of(model, **asked, max_seq=planned["max_seq"] + PAGE_SIZE)
        assert longer["fits"] is False
        assert longer["advice"] == f"max_seq {planned['max_seq']} fits."
    return planned


def fixed_bytes(planned: dict) -> int:
    rank = planned["ranks"][0]
    return rank["weight_bytes"] + rank["buffer_bytes"] + rank["host_bytes"]


def pages_that_fit(planned: dict) -> int:
    return (planned["memory_limit_bytes"] - fixed_bytes(planned)) // planned["page_bytes"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_the_context_is_the_models_own(path):
    planned = expect_the_most_that_fits(path, memory_limit_bytes=PLENTY, world_size=8)
    assert planned["max_seq"] == planned["model_max_seq"] > 100_000
    assert (planned["max_batch"], planned["max_batch_from"]) == (CPU_BATCH, "default")


@pytest.mark.parametrize("billions", [111, 112, 120, 141, 200])
def test_the_memory_cuts_the_context_of_air(billions):
    planned = expect_the_most_that_fits(AIR, memory_limit_bytes=billions * 10**9)
    assert planned["max_seq"] >= USUAL_TOKENS
    assert (planned["max_seq_from"] == "model") == (billions == 200)


def test_air_on_a_device_of_141_gb_has_more_than_4096_tokens():
    planned = expect_the_most_that_fits(AIR, memory_limit_bytes=H200_BYTES)
    assert planned["max_seq"] > 80_000
    assert planned["max_batch"] == CPU_BATCH
    assert "limited by memory" in context_line(planned)
    assert "131,072" in cut_line(planned)


def test_the_batch_has_512_tokens_of_the_pool_for_each_request():
    for billions in (110, 112, 114):
        limit = {"memory_limit_bytes": billions * 10**9}
        planned = expect_the_most_that_fits(AIR, **limit)
        assert planned["max_batch_from"] == "memory"
        assert batch_line(planned).endswith(", limited by memory")
        assert planned["max_batch"] * USUAL_TOKENS <= planned["tokens_of_context"]
        more = {**limit, "max_batch": planned["max_batch"] + 1, "max_seq": USUAL_TOKENS}
        assert plan_of(AIR, **more)["tokens_of_context"] < more["max_batch"] * USUAL_TOKENS


def test_what_is_asked_for_is_kept():
    limit = {"memory_limit_bytes": H200_BYTES}
    planned = plan_of(AIR, **limit, max_seq=1024, max_batch=7)
    assert (planned["max_seq"], planned["max_seq_from"]) == (1024, "option")
    assert (planned["max_batch"], planned["max_batch_from"]) == (7, "option")
    assert cut_line(planned) is None
    alone = plan_of(AIR, **limit, max_batch=256)
    assert (alone["max_batch"], alone["max_seq_from"]) == (256, "memory")
    assert alone["max_seq"] < plan_of(AIR, **limit)["max_seq"]


def test_a_context_below_512_tokens_is_refused_and_said(tmp_path):
    model = tamper.small_checkpoint(tmp_path / "model", max_position_embeddings=POSITIONS)
    full = plan_of(model, memory_limit_bytes=PLENTY, max_batch=1, max_seq=USUAL_TOKENS)
    limit = fixed_bytes(full) + 20 * full["page_bytes"]
    refused = plan_of(model, memory_limit_bytes=limit)
    assert refused["fits"] is False
    assert refused["advice"] == "max_seq 320 fits."
    assert "max_seq" not in refused["reason"]
    assert plan_of(model, memory_limit_bytes=limit, max_batch=1, max_seq=320)["fits"] is True


def test_a_pool_that_is_asked_for_cuts_both(tmp_path):
    model = tamper.small_checkpoint(tmp_path / "model", max_position_embeddings=POSITIONS)
    planned = plan_of(model, memory_limit_bytes=PLENTY, num_pages=129)
    assert (planned["max_seq"], planned["max_seq_from"]) == (129 * PAGE_SIZE, "num_pages")
    assert (planned["max_batch"], planned["max_batch_from"]) == (4, "num_pages")
    assert "limited by --num-pages" in cut_line(planned)
    small = plan_of(model, memory_limit_bytes=PLENTY, num_pages=3)
    assert (small["fits"], small["max_seq"], small["max_batch"]) == (True, 3 * PAGE_SIZE, 1)


@pytest.mark.parametrize("positions", [2**12, 2**19, 2**24])
def test_the_cpu_gives_a_quarter_of_its_memory_or_one_whole_context(positions, tmp_path):
    model = tamper.small_checkpoint(tmp_path / "model", max_position_embeddings=positions)
    planned = plan_of(model)
    room = pages_that_fit(planned)
    whole = -(-planned["max_seq"] // PAGE_SIZE)
    wanted = planned["max_batch"] * whole
    assert planned["num_pages"] == min(wanted, max(whole, room // 4))
    limited = plan_of(model, memory_limit_bytes=planned["memory_limit_bytes"])
    assert limited["num_pages"] == min(wanted, pages_that_fit(limited))


def test_zeros_of_init_engine_are_what_the_plan_says(tmp_path):
    skip_where_a_gpu_is()
    model = tamper.small_checkpoint(tmp_path / "model", max_position_embeddings=POSITIONS)
    library = load_engine_library()
    info = abi.InfoStruct(struct_size=ctypes.sizeof(abi.InfoStruct))
    engine = library.init_engine(bytes(model), 0, 0, 0)
    assert engine
    assert library.get_engine_info(engine, ctypes.byref(info)) == Status.GLM_OK
    assert library.free_engine(engine) == Status.GLM_OK
    planned = plan(EngineOptions(model_dir=model))
    for name in ("max_seq", "max_batch", "model_max_seq", "world_size"):
        assert getattr(info, name) == planned[name]
    assert abi.SIZE_SOURCES[info.max_seq_from] == planned["max_seq_from"] == "model"


def test_a_request_of_the_whole_context_runs_where_memory_cut_it(tmp_path):
    model = tamper.small_checkpoint(tmp_path / "model", max_position_embeddings=POSITIONS)
    full = plan_of(model, memory_limit_bytes=PLENTY, max_batch=1, max_seq=USUAL_TOKENS)
    limit = fixed_bytes(full) + 40 * full["page_bytes"]
    options = EngineOptions(model, device="cpu", memory_limit_bytes=limit, num_threads=2)
    planned = plan(options)
    with Engine(options) as engine:
        info = engine.info()
        assert info["max_seq_from"] == planned["max_seq_from"] == "memory"
        assert info["max_seq"] == planned["max_seq"] < POSITIONS
        prompt = [index % info["vocab_size"] for index in range(info["max_seq"] - 2)]
        [done] = run_requests(engine, [Request(prompt, max_tokens=2, ignore_eos=True)])
    assert (len(done.tokens), done.finish_reason) == (2, "length")

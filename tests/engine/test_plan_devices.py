"""Plans for devices that are not here, for devices of unequal memories, and how many are chosen.

The device library is that of `failing_device.py`: a test says how many devices there are and what
each has free, and sees how many were opened.
"""

import json
import os
import random
from pathlib import Path

import pytest

from glm_engine.core import diagnosis
from glm_engine.core.console import world_size_choice
from glm_engine.core.engine import Engine, EngineOptions, plan
from glm_engine.core.errors import EngineError, Status
from glm_engine.core.loading import NO_NATIVE_KERNELS, load_engine
from tests.engine.failing_device import FOLDER, arm, library, set_memories
from tests.engine.probes import ROOT
from tests.reference.capitals import CAPITALS

CONFIGS = ROOT / "python" / "glm_engine" / "configs"
AIR, GLM = CONFIGS / "glm-4.5-air-fp8.json", CONFIGS / "glm-4.7-fp8.json"
CUDA = ROOT / "build" / "libglm_cuda.so"
KINDS = ("cpu", "cuda")
LIBRARIES = (*KINDS, "cuda_plan")
GIGABYTE = 10**9
SEED = int(os.environ.get("GLM_TEST_SEED", "20470"))
NUM_LAYERS, HEAD_DIM, PAGE_SIZE, VOCAB_SIZE = 46, 128, 16, 151552


def plan_of(model_dir: Path, kind: str = "cuda", **options) -> dict:
    return plan(EngineOptions(model_dir, device=kind, library_dir=FOLDER, **options))


@pytest.fixture(autouse=True)
def _given_back():
    """Let each kind open its devices, and have the processor's memory again in the end."""
    for name in LIBRARIES:
        arm(kind=name)
    yield
    for kind in KINDS:
        set_memories([], kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_a_plan_without_devices_is_that_of_devices_with_this_memory(kind, world_size):
    generator = random.Random(f"{SEED} {kind} {world_size}")
    memory = generator.randrange(700 * GIGABYTE, 900 * GIGABYTE)
    print(f"{memory} bytes, GLM_TEST_SEED {SEED}")
    set_memories([memory] * world_size, kind)
    opened = plan_of(AIR, kind, world_size=world_size)
    arm(kind=kind)
    set_memories([1] * world_size, kind)
    described = plan_of(AIR, kind, world_size=world_size, device_memory_bytes=memory)
    assert not any(library(name).failing_num_opened() for name in (kind, LIBRARIES[-1]))
    assert described == opened
    assert described["fits"] is True


def test_an_engine_is_not_loaded_on_devices_that_are_not_here():
    with pytest.raises(EngineError, match="only engine_plan accepts this option") as caught:
        Engine(EngineOptions(CAPITALS, device="cpu", device_memory_bytes=GIGABYTE))
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT


@pytest.mark.parametrize("world_size", [3, 5, 6, 7, 16])
def test_groups_that_no_gpus_form_are_refused(world_size):
    with pytest.raises(EngineError, match=f"world_size is {world_size}; expected 1, 2, 4 or 8"):
        plan_of(AIR, world_size=world_size, device_memory_bytes=141 * GIGABYTE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["expert_parallel", "tensor_parallel"])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_the_ranks_hold_the_checkpoint_once(kind, layout, world_size):
    options = {"world_size": world_size, "expert_layout": layout, "max_seq": 4096}
    planned = plan_of(GLM, kind, device_memory_bytes=1000 * GIGABYTE, **options)
    weight_bytes = sum(rank["weight_bytes"] for rank in planned["ranks"])
    assert planned["checkpoint_bytes"] < weight_bytes < 1.05 * planned["checkpoint_bytes"]


@pytest.mark.parametrize(("kind", "in_memory"), [("cpu", sum), ("cuda", max)], ids=KINDS)
def test_the_pool_is_what_one_rank_or_all_together_leave(kind, in_memory):
    options = {"world_size": 8, "expert_layout": "expert_parallel", "max_seq": 4096}
    given = {"max_batch": 8, "max_step_tokens": 1024, "num_pages": 1024, **options}
    roomy = plan_of(GLM, kind, device_memory_bytes=1000 * GIGABYTE, **given)
    needed = in_memory(rank["total_bytes"] for rank in roomy["ranks"])
    if kind == "cpu":
        needed += roomy["ranks"][0]["host_bytes"]
    limit = {"device_memory_bytes": 1000 * GIGABYTE, **given}
    assert plan_of(GLM, kind, memory_limit_bytes=needed, **limit)["fits"] is True
    assert plan_of(GLM, kind, memory_limit_bytes=needed - 1, **limit)["fits"] is False


@pytest.mark.parametrize("percent", [1, 50, 100])
def test_a_limit_in_hundredths_of_what_is_free(percent):
    planned = plan_of(AIR, device_memory_bytes=1000 * GIGABYTE, memory_limit_percent=percent)
    assert planned["memory_limit_bytes"] == 10 * percent * GIGABYTE
    with pytest.raises(EngineError, match="memory_limit_percent cannot be used together"):
        plan_of(AIR, memory_limit_percent=percent, memory_limit_bytes=5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_above_what_the_fullest_device_has_free_is_refused(kind):
    set_memories([3 * GIGABYTE, 2 * GIGABYTE], kind)
    options = {"device": kind, "library_dir": FOLDER, "world_size": 2}
    options |= {"max_batch": 2, "max_seq": 64}
    within = EngineOptions(CAPITALS, memory_limit_bytes=2 * GIGABYTE, **options)
    assert plan(within)["memory_limit_bytes"] == 2 * GIGABYTE
    with Engine(within) as engine:
        assert engine.info()["world_size"] == 2
    above = EngineOptions(CAPITALS, memory_limit_bytes=2 * GIGABYTE + 1, **options)
    words = r"memory_limit_bytes is 2\.00 GB, which is 1 bytes more than the device's free memory"
    for refuses in (plan, Engine):
        with pytest.raises(EngineError, match=words) as caught:
            refuses(above)
        assert caught.value.status == Status.GLM_OUT_OF_MEMORY


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_compared_with_the_memory_that_is_planned_for(kind):
    set_memories([1], kind)
    memory = {"device_memory_bytes": 200 * GIGABYTE}
    planned = plan_of(AIR, kind, memory_limit_bytes=200 * GIGABYTE, **memory)
    assert planned["fits"] is True
    with pytest.raises(EngineError, match=r"200\.00 GB, which is 1 bytes more than"):
        plan_of(AIR, kind, memory_limit_bytes=200 * GIGABYTE + 1, **memory)


def is_too_wide(num_tokens: int, **options) -> bool:
    """Say whether buffers of so many tokens a step exceed a sixteenth of what the weights leave."""
    batch = {"max_batch": 256, "max_seq": 512}
    planned = plan_of(AIR, max_step_tokens=num_tokens, **{**batch, **options})
    rank = planned["ranks"][0]
    return 16 * rank["buffer_bytes"] > planned["memory_limit_bytes"] - rank["weight_bytes"]


@pytest.mark.parametrize(
    ("gigabytes", "expected"),
    [(200, 8192), (150, 4096), (141, 2048), (125, 1024), (120, 512), (100, 512)],
)
def test_a_step_has_8192_tokens_halved_to_a_sixteenth_of_what_is_left(gigabytes, expected):
    memory = {"world_size": 1, "device_memory_bytes": gigabytes * GIGABYTE}
    tokens = plan_of(AIR, **memory)["max_step_tokens"]
    assert tokens == expected
    assert tokens == 8192 or is_too_wide(2 * tokens, **memory)
    assert tokens == 512 or not is_too_wide(tokens, **memory)


def test_a_step_has_twice_the_tokens_of_its_batch_and_what_is_stated():
    memory = {"device_memory_bytes": 300 * GIGABYTE}
    for kind, usual in (("cpu", 512), ("cuda", 8192)):
        for max_batch, expected in ((0, usual), (1, usual), (5000, 10_000)):
            planned = plan_of(AIR, kind, max_batch=max_batch, **memory)
            assert planned["max_step_tokens"] == expected
        assert plan_of(AIR, kind, max_step_tokens=3, **memory)["max_step_tokens"] == 3


@pytest.mark.parametrize("gigabytes", [125, 130, 141])
def test_wide_steps_cost_at_most_a_sixteenth_of_the_context(gigabytes):
    memory = {"world_size": 1, "device_memory_bytes": gigabytes * GIGABYTE}
    wide, narrow = plan_of(AIR, **memory), plan_of(AIR, **memory, max_step_tokens=512)
    assert wide["max_step_tokens"] > 512
    assert 16 * (wide["max_seq"] + PAGE_SIZE) >= 15 * narrow["max_seq"]
    assert wide["max_seq"] < narrow["max_seq"] < wide["model_max_seq"]


@pytest.mark.parametrize("max_batch", [256, 257, 300, 1023])
def test_a_step_is_no_wider_than_twice_its_batch_where_nothing_else_fits(max_batch):
    memory = {"world_size": 1, "device_memory_bytes": 100 * GIGABYTE}
    assert plan_of(AIR, max_batch=max_batch, **memory)["max_step_tokens"] == 2 * max_batch


def test_a_step_is_narrower_where_a_wider_one_leaves_no_room_for_what_is_stated():
    memory = {"world_size": 1, "device_memory_bytes": 200 * GIGABYTE}
    wide = plan_of(AIR, **memory, max_batch=1, num_pages=1)
    rank = wide["ranks"][0]
    room = wide["memory_limit_bytes"] - rank["weight_bytes"] - rank["buffer_bytes"]
    planned = plan_of(AIR, **memory, max_batch=1, num_pages=room // wide["page_bytes"] + 1)
    assert planned["fits"] is True
    assert planned["max_step_tokens"] < wide["max_step_tokens"] == 8192


@pytest.mark.skipif(not CUDA.is_file(), reason=f"{CUDA.name} is not built: scons cuda makes it")
@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_cuda_plans_without_a_gpu(world_size):
    options = {"device": "cuda", "world_size": world_size, "device_memory_bytes": 450 * GIGABYTE}
    planned = plan(EngineOptions(AIR, **options))
    assert (planned["device"], planned["kv_dtype"]) == ("cuda", "bfloat16")
    assert planned["fits"] is True
    page = 2 * 2 * NUM_LAYERS * (8 // world_size) * HEAD_DIM * PAGE_SIZE
    assert planned["page_bytes"] == page
    assert planned["ranks"][0]["workspace_bytes"] > 0
    halved = plan(EngineOptions(AIR, kv_dtype=2, **options))
    assert (halved["kv_dtype"], halved["page_bytes"]) == ("fp8_e4m3", page // 2)
    with pytest.raises(EngineError, match="page_size is 8; the device") as caught:
        plan(EngineOptions(AIR, page_size=8, **options))
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("kv_dtype", "name", "bytes_each"), [(0, "float32", 4), (2, "fp8_e4m3", 1)]
)
@pytest.mark.parametrize("world_size", [1, 2])
def test_futhark_plans_without_a_gpu(world_size, kv_dtype, name, bytes_each):
    options = {"world_size": world_size, "device_memory_bytes": 450 * GIGABYTE}
    planned = plan(EngineOptions(AIR, device="futhark", kv_dtype=kv_dtype, **options))
    assert (planned["device"], planned["kv_dtype"], planned["fits"]) == ("futhark", name, True)
    assert (planned["max_batch"], planned["max_step_tokens"]) == (64, 512)
    page = 2 * bytes_each * NUM_LAYERS * (8 // world_size) * HEAD_DIM * PAGE_SIZE
    assert planned["page_bytes"] == page


@pytest.mark.parametrize(
    ("device", "name", "lines"),
    [
        ("auto", "Futhark, NVIDIA A100", [NO_NATIVE_KERNELS]),
        ("futhark", "Futhark, NVIDIA A100", []),
        ("auto", "CPU", []),
    ],
)
def test_auto_says_that_it_chose_futhark(monkeypatch, device, name, lines):
    class OpenedEngine:
        def __init__(self, options):
            assert options.device == device

        def info(self):
            return {"device": name, "world_size": 1, "max_seq": 64, "max_seq_from": "option"}

    monkeypatch.setattr("glm_engine.core.loading.Engine", OpenedEngine)
    warnings, told = [], []
    options = EngineOptions(CAPITALS, device=device, world_size=1)
    load_engine(options, warn=warnings.append, inform=told.append)
    assert (warnings, told) == ([], lines)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_the_device_with_the_least_free_memory_decides(kind, world_size):
    generator = random.Random(f"{SEED} {kind} {world_size} least")
    memories = [generator.randrange(500 * GIGABYTE, 900 * GIGABYTE) for _ in range(world_size)]
    print(f"{memories} bytes, GLM_TEST_SEED {SEED}")
    set_memories(memories, kind)
    unequal = plan_of(AIR, kind, world_size=world_size)
    set_memories([min(memories)] * world_size, kind)
    assert plan_of(AIR, kind, world_size=world_size) == unequal
    hundredths = 90 if kind == "cpu" else 97
    assert unequal["memory_limit_bytes"] == min(memories) // 100 * hundredths


def test_an_engine_is_refused_where_its_last_device_is_full():
    set_memories([GIGABYTE, GIGABYTE, GIGABYTE, 1_000_000], "cuda")
    options = {"device": "cuda", "library_dir": FOLDER, "max_batch": 2, "max_seq": 64}
    with pytest.raises(EngineError, match=r"970\.00 kB is available"):
        Engine(EngineOptions(CAPITALS, world_size=4, **options))
    with Engine(EngineOptions(CAPITALS, world_size=2, **options)) as engine:
        assert engine.info()["world_size"] == 2


def needed(model_dir: Path, world_size: int, **options) -> int:
    """The least free memory of each of so many devices at which the model fits."""
    refused = plan_of(model_dir, world_size=world_size, device_memory_bytes=100, **options)
    return 100 * -(-refused["needed_bytes"] // 97)


@pytest.mark.parametrize("is_here", [False, True])
def test_the_least_world_size_that_holds_the_model_is_taken(is_here):
    for world_size in (1, 2, 4, 8):
        least = needed(AIR, world_size)
        for memory, expected in ((least, world_size), (least - 1, 2 * world_size)):
            set_memories([memory] * 8 if is_here else [], "cuda")
            planned = plan_of(AIR, device_memory_bytes=0 if is_here else memory)
            assert planned["fits"] is (expected <= 8)
            assert planned["world_size"] == min(expected, 8)


@pytest.mark.parametrize(("num_devices", "world_size"), [(1, 1), (2, 2), (3, 2), (7, 4)])
def test_no_more_devices_are_taken_than_are_here(num_devices, world_size):
    set_memories([8 * GIGABYTE] * num_devices, "cuda")
    planned = plan_of(GLM)
    assert (planned["world_size"], planned["fits"]) == (world_size, False)


def test_a_model_that_does_not_divide_says_so(tmp_path):
    config = json.loads(AIR.read_text(encoding="utf-8"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "num_key_value_heads": 3}), encoding="utf-8")
    planned = plan_of(path, device_memory_bytes=80 * GIGABYTE)
    assert (planned["world_size"], planned["fits"]) == (1, False)
    assert planned["reason"].endswith(
        "; num_key_value_heads is 3, which is not divisible by world_size 2"
    )


def test_the_cpu_stays_one_rank():
    set_memories([8 * GIGABYTE] * 4, "cpu")
    planned = plan_of(GLM, "cpu")
    assert (planned["world_size"], planned["fits"]) == (1, False)


def test_an_engine_says_how_many_devices_it_took(capsys):
    options = EngineOptions(CAPITALS, device="cuda", library_dir=FOLDER, max_batch=2, max_seq=64)
    least = needed(CAPITALS, 2, max_batch=2, max_seq=64)
    set_memories([least] * 2, "cuda")
    engine, _ = load_engine(options)
    with engine:
        assert engine.info()["world_size"] == 2
    fewest = "the smallest number of GPUs (1, 2, 4 or 8) that can hold the model"
    assert capsys.readouterr().err == f"glm: world size 2: {fewest}\n"


def test_how_many_devices_an_engine_took_is_no_warning():
    options = EngineOptions(CAPITALS, device="cuda", library_dir=FOLDER, max_batch=2, max_seq=64)
    set_memories([needed(CAPITALS, 1, max_batch=2, max_seq=64)], "cuda")
    warnings, lines = [], []
    engine, _ = load_engine(options, warn=warnings.append, inform=lines.append)
    engine.close()
    assert (warnings, lines) == ([], [world_size_choice(1)])


@pytest.mark.parametrize("quiet", [False, True])
def test_a_kind_of_gpu_that_was_never_tested_is_a_warning(monkeypatch, quiet):
    monkeypatch.setattr(diagnosis, "untested_gpu", lambda: "never tested")
    options = EngineOptions(CAPITALS, device="cuda", library_dir=FOLDER, max_batch=2, max_seq=64)
    set_memories([needed(CAPITALS, 1, max_batch=2, max_seq=64)], "cuda")
    warnings = []
    engine, _ = load_engine(options, quiet, warnings.append, lambda _: None)
    engine.close()
    assert warnings == ([] if quiet else ["never tested"])


def test_ranks_of_one_device_have_their_part_of_its_memory():
    memory = 400 * GIGABYTE
    whole = plan_of(AIR, world_size=4, device_memory_bytes=memory)
    divided = {"ranks_per_device": 2, "device_memory_bytes": 2 * memory}
    assert plan_of(AIR, world_size=4, **divided) == whole


def test_ranks_that_do_not_fill_their_devices_are_refused():
    words = r"world_size is 4; expected a multiple of ranks_per_device \(3\)"
    with pytest.raises(EngineError, match=words):
        plan_of(AIR, world_size=4, ranks_per_device=3, device_memory_bytes=400 * GIGABYTE)


def test_each_device_is_named_once_for_each_of_its_ranks():
    options = {"device": "cpu", "library_dir": FOLDER, "max_batch": 2, "max_seq": 64}
    options |= {"num_threads": 4, "world_size": 4}
    with Engine(EngineOptions(CAPITALS, ranks_per_device=4, **options)) as engine:
        assert engine.info()["world_size"] == 4
    with pytest.raises(EngineError, match=r"group_create: devices.2.: expected 0 to 0, got 1"):
        Engine(EngineOptions(CAPITALS, ranks_per_device=2, **options))


@pytest.mark.parametrize(
    ("max_batch", "most_rows"), [(1, 4), (60, 240), (64, 256), (128, 256), (300, 300)]
)
def test_a_plan_counts_the_rows_of_drafts(max_batch, most_rows):
    """With 3 drafts beside each token, up to 256 rows a step: each has logits of the vocabulary."""
    sizes = {"max_batch": max_batch, "max_step_tokens": 4096, "max_seq": 4096}
    plain, drafted = (
        plan_of(AIR, device_memory_bytes=400 * GIGABYTE, max_draft_tokens=count, **sizes)
        for count in (0, 3)
    )
    added = drafted["ranks"][0]["buffer_bytes"] - plain["ranks"][0]["buffer_bytes"]
    logits = 4 * VOCAB_SIZE * (most_rows - max_batch)
    assert logits <= added <= 1.2 * logits + 2**20


def test_a_cache_that_is_not_kept_names_the_device_that_was_asked_for():
    options = EngineOptions(
        CAPITALS, device="futhark", device_memory_bytes=8 * GIGABYTE, kv_dtype=1
    )
    expected = "device futhark does not support kv_dtype bfloat16; use float32 or fp8_e4m3"
    with pytest.raises(EngineError, match=expected):
        plan(options)

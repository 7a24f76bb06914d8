"""The plan's numbers against those derived in Python from the config, and its refusals."""

import json
import re
import time
from pathlib import Path

import pytest

from glm_engine.core.engine import EngineOptions, inspect_checkpoint, plan
from glm_engine.core.errors import EngineError, Status
from glm_engine.core.layout import CONFIGS
from tests.engine import loader, tamper
from tests.nvidia_driver import skip_where_a_gpu_is
from tools.checkpoint.layout import TensorSpec, checkpoint_specs
from tools.checkpoint.shards import write_model

ROOT = Path(__file__).resolve().parents[2]
BF16_CONFIGS = ROOT / "tests" / "data" / "configs"
PUBLISHED = sorted([*CONFIGS.glob("*.json"), *BF16_CONFIGS.glob("*.json")])
GLM = CONFIGS / "glm-4.7-fp8.json"
CAPITALS = ROOT / "checkpoints" / "capitals"
PLENTY = 2**50
NUM_SHARDS = 93
NUM_TENSORS = 87_553


def is_prediction(spec: TensorSpec, config: dict) -> bool:
    parts = spec.name.split(".")
    return parts[:2] == ["model", "layers"] and int(parts[2]) >= config["num_hidden_layers"]


def plan_of(model_dir: Path, **options) -> dict:
    chosen = {"memory_limit_bytes": PLENTY, **options}
    memory = chosen["memory_limit_bytes"]
    return plan(EngineOptions(model_dir, device="cpu", device_memory_bytes=memory, **chosen))


def test_figures_of_glm_4_7_fp8():
    document = plan_of(GLM, world_size=8)
    assert round(document["num_parameters"] / 1e9, 2) == 352.80
    assert round(document["num_parameters_with_nextn"] / 1e9, 2) == 356.79
    assert round(document["checkpoint_bytes"] / 1e9, 1) == 354.9
    assert document["kv_bytes_per_token_bf16"] == 368 * 1024
    assert document["fits"] is True


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_tensors_that_a_config_implies(path):
    config = json.loads(path.read_text(encoding="utf-8"))
    specs = checkpoint_specs(config)
    inspected = inspect_checkpoint(path)
    assert {(t["name"], t["dtype"], tuple(t["shape"])) for t in inspected["tensors"]} == {
        (spec.name, spec.dtype, spec.shape) for spec in specs
    }
    used = [spec for spec in specs if not is_prediction(spec, config)]
    parameters = [spec for spec in used if not spec.name.endswith("_scale")]
    assert inspected["num_parameters"] == sum(spec.num_elements for spec in parameters)
    assert inspected["checkpoint_bytes"] == sum(spec.num_bytes for spec in used)


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
@pytest.mark.parametrize("expert_layout", ["tensor_parallel", "expert_parallel"])
def test_parts_add_up(world_size, expert_layout):
    document = plan_of(CAPITALS, world_size=world_size, expert_layout=expert_layout)
    assert document["expert_layout"] == expert_layout
    assert [rank["rank"] for rank in document["ranks"]] == list(range(world_size))
    for rank in document["ranks"]:
        parts = ("weight_bytes", "kv_bytes", "buffer_bytes")
        assert rank["total_bytes"] == sum(rank[part] for part in parts)
        assert rank["kv_bytes"] == document["page_bytes"] * document["num_pages"]
    page_tokens = document["page_bytes"] * world_size // document["page_size"]
    assert page_tokens == document["kv_bytes_per_token"]
    assert document["tokens_of_context"] == document["num_pages"] * document["page_size"]


def test_weights_are_about_the_checkpoint():
    document = plan_of(CAPITALS)
    weights = document["ranks"][0]["weight_bytes"]
    assert document["checkpoint_bytes"] < weights < 1.1 * document["checkpoint_bytes"]


def test_pages_follow_the_memory():
    roomy = plan_of(CAPITALS, max_seq=1024, max_batch=8)
    assert roomy["num_pages"] == 8 * 1024 // 16
    assert roomy["concurrent_requests"] == 8
    fixed = sum(roomy["ranks"][0][part] for part in ("weight_bytes", "buffer_bytes"))
    limit = fixed + roomy["ranks"][0]["host_bytes"] + 200 * roomy["page_bytes"]
    tight = plan_of(CAPITALS, max_seq=1024, max_batch=8, memory_limit_bytes=limit)
    assert tight["fits"] is True
    assert tight["num_pages"] == 200
    assert tight["concurrent_requests"] == 200 * 16 // 1024
    refused = plan_of(CAPITALS, max_seq=1024, max_batch=8, num_pages=201, memory_limit_bytes=limit)
    assert refused["fits"] is False
    assert refused["memory_limit_bytes"] == limit < refused["needed_bytes"]
    assert " for one request" not in refused["reason"]
    assert " of 201 pages" in refused["reason"]


def tight_limit(pages: int, **options) -> int:
    """Bytes that hold the weights, the buffers and so many pages."""
    roomy = plan_of(CAPITALS, **options)
    fixed = sum(roomy["ranks"][0][part] for part in ("weight_bytes", "buffer_bytes", "host_bytes"))
    return fixed + pages * roomy["page_bytes"]


@pytest.mark.parametrize(
    ("given", "pages", "named"),
    [
        ({"max_seq": 1024}, 40, ["max_seq"]),
        ({"max_seq": 1024, "num_pages": 201}, 200, ["num_pages"]),
        ({"max_seq": 1024, "num_pages": 201}, 40, ["num_pages", "max_seq"]),
    ],
)
def test_a_refusal_says_what_is_missing_and_what_would_fit(given, pages, named):
    limit = tight_limit(pages, max_batch=8, **given)
    refused = plan_of(CAPITALS, max_batch=8, memory_limit_bytes=limit, **given)
    assert refused["fits"] is False
    missing = refused["needed_bytes"] - limit
    enough = plan_of(CAPITALS, max_batch=8, memory_limit_bytes=limit + missing, **given)
    short = plan_of(CAPITALS, max_batch=8, memory_limit_bytes=limit + missing - 1, **given)
    assert (enough["fits"], short["fits"]) == (True, False)
    assert refused["advice"].endswith(" fits.")
    suggested = {k: int(v) for k, v in re.findall(r"(\w+) (\d+)", refused["advice"])}
    assert list(suggested) == named
    followed = {**given, **suggested}
    assert plan_of(CAPITALS, max_batch=8, memory_limit_bytes=limit, **followed)["fits"] is True


def test_no_room_for_a_page_names_what_takes_it():
    refused = plan_of(CAPITALS, memory_limit_bytes=1_000_000)
    assert refused["fits"] is False
    assert refused["advice"] == "Use a machine with more memory."


def test_buffers_that_take_what_is_missing_are_named():
    stated = {"max_batch": 8, "max_seq": 64, "max_step_tokens": 4096}
    fixed = plan_of(CAPITALS, **stated)["ranks"][0]
    limit = fixed["weight_bytes"] + fixed["buffer_bytes"]
    refused = plan_of(CAPITALS, **stated, memory_limit_bytes=limit)
    assert refused["advice"] == "Use a machine with more memory or a smaller max_step_tokens."


@pytest.mark.parametrize(("num_pages", "fits"), [(63, False), (64, True), (65, True)])
def test_pool_for_one_request(num_pages, fits):
    document = plan_of(CAPITALS, max_seq=1024, max_batch=8, num_pages=num_pages)
    assert document["fits"] is fits
    assert ("too small for one request" in document["reason"]) is not fits


def test_a_limit_above_the_memory_of_this_machine_is_refused():
    with pytest.raises(
        EngineError, match=r"memory_limit_bytes is [\d.]+ GB, which is [\d.]+ GB more"
    ) as caught:
        plan(EngineOptions(CAPITALS, device="cpu", memory_limit_bytes=PLENTY))
    assert caught.value.status == Status.GLM_OUT_OF_MEMORY


def test_page_tables_of_too_many_entries():
    with pytest.raises(
        EngineError, match="max_batch 65536, max_seq 202752 and page_size 1 require"
    ):
        plan_of(GLM, max_batch=65536, max_seq=202752, page_size=1)


def test_defaults_that_zero_stands_for(tmp_path):
    directory = tamper.small_checkpoint(tmp_path / "model")
    document = plan_of(directory, max_seq=0, max_batch=0, page_size=0, world_size=0)
    assert document["max_seq"] == 512
    assert (document["max_batch"], document["page_size"], document["world_size"]) == (64, 16, 1)
    assert document == plan_of(directory)


@pytest.fixture
def no_gpu():
    skip_where_a_gpu_is()


@pytest.mark.usefixtures("no_gpu")
def test_auto_without_a_driver_is_the_cpu():
    assert plan(EngineOptions(model_dir=CAPITALS, device="auto"))["device"] == "cpu"


@pytest.mark.usefixtures("no_gpu")
def test_cuda_is_never_replaced_by_the_cpu():
    with pytest.raises(EngineError, match="cuda"):
        plan(EngineOptions(model_dir=CAPITALS, device="cuda"))


@pytest.fixture(scope="module")
def sparse(tmp_path_factory) -> Path:
    """Shards of GLM-4.7-FP8's own names and sizes whose data takes no space."""
    directory = tmp_path_factory.mktemp("sparse")
    config = json.loads(GLM.read_text(encoding="utf-8"))
    config["num_nextn_predict_layers"] = 0
    write_model(directory, config, NUM_SHARDS, None)
    return directory


def test_headers_of_the_whole_model(sparse):
    begin = time.perf_counter()
    status, num_tensors, message = loader.read_checkpoint(sparse)
    seconds = time.perf_counter() - begin
    assert (status, num_tensors, message) == (0, NUM_TENSORS, "")
    print(f"{NUM_TENSORS} tensors of {NUM_SHARDS} shards in {seconds:.3f} s (debug build)")
    document = plan_of(sparse, world_size=8)
    assert round(document["num_parameters"] / 1e9, 2) == 352.80
    assert round(document["checkpoint_bytes"] / 1e9, 1) == 354.9

"""What a device cannot do with a model is said by the plan, before a weight is read.

The library of plans checks a model's shapes without CUDA; `tests/native/test_model_limits.py`
compares that check with what the operations themselves refuse.
"""

import json
from pathlib import Path

import pytest

from glm_engine.core.engine import Engine, EngineOptions, plan
from glm_engine.core.errors import EngineError, Status
from tests.devices import device_kind
from tests.golden_checks import numpy_logits
from tests.reference.compare import relative_rms
from tools.checkpoint.random_model import small_config, write_random_model

TERABYTE = 10**12
LIMIT = 0.01
DENSE = {"first_k_dense_replace": 3}
ALONE = {"n_shared_experts": 0}

LIMITS = {
    "head_dim": ({"head_dim": 256}, {"head_dim": 320}, "head_dim: expected at most 256, got 320"),
    "heads per KV head": (
        {"num_attention_heads": 32},
        {"num_attention_heads": 34},
        "query heads per KV head: expected at most 16, got 17",
    ),
    "routed experts": (
        {**ALONE, "n_routed_experts": 256},
        {**ALONE, "n_routed_experts": 257},
        "experts: expected 1 to 256, got 257",
    ),
    "local experts with a shared expert": (
        {"n_routed_experts": 255},
        {"n_routed_experts": 256},
        "num_local_experts with a shared expert: expected 0 to 255, got 256",
    ),
    "top_k": (
        {"n_routed_experts": 64, "num_experts_per_tok": 32},
        {"n_routed_experts": 64, "num_experts_per_tok": 33},
        "top_k: expected 1 to 32, got 33",
    ),
    "rows of a router": (
        {"hidden_size": 28160},
        {"hidden_size": 28224},
        "hidden_size: expected a value that fits in shared memory with 8 experts, got 28224",
    ),
    "hidden_size": (
        {**DENSE, "hidden_size": 65536},
        {**DENSE, "hidden_size": 65544},
        "width: expected at most 65536, got 65544",
    ),
    "hidden_size over ranks": (
        {**DENSE, "hidden_size": 16384, "world_size": 2},
        {**DENSE, "hidden_size": 16392, "world_size": 2},
        "hidden_size with several ranks: expected at most 16384, got 16392",
    ),
    "intermediate_size": (
        {"intermediate_size": 65536},
        {"intermediate_size": 65544},
        "swiglu_quantise: width: expected at most 65536, got 65544",
    ),
    "width of all heads": (
        {"num_attention_heads": 256, "num_key_value_heads": 16, "head_dim": 256},
        {"num_attention_heads": 272, "num_key_value_heads": 17, "head_dim": 256},
        "width: expected at most 65536, got 69632",
    ),
    "vocab_size": (
        {"vocab_size": 196608},
        {"vocab_size": 196609},
        "vocab_size: expected at most 196608, got 196609",
    ),
    "float32 weights": (
        {"torch_dtype": "bfloat16"},
        {"torch_dtype": "float32"},
        "logits: head.dtype: expected BF16, got F32, which GPUs do not run: "
        "use the CPU (--device cpu), or convert the checkpoint to BF16",
    ),
}


def made_plan(directory: Path, world_size: int = 1, **changes) -> dict:
    """What `glm plan` says of such a config for GPUs that are not here."""
    path = directory / "config.json"
    path.write_text(json.dumps(small_config(**changes)), encoding="utf-8")
    return plan(
        EngineOptions(path, device="cuda", world_size=world_size, device_memory_bytes=TERABYTE)
    )


def refusal(directory: Path, **changes) -> str:
    with pytest.raises(EngineError) as caught:
        made_plan(directory, **changes)
    assert caught.value.status == Status.GLM_NOT_SUPPORTED
    assert "device cuda cannot run this model with world_size " in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", LIMITS)
def test_limits_of_gpus(name, tmp_path):
    most, more, words = LIMITS[name]
    assert made_plan(tmp_path, **most)["fits"] is True
    assert words in refusal(tmp_path, **more)


def test_limits_that_more_devices_lift(tmp_path):
    many = {"n_routed_experts": 256}
    assert "num_local_experts" in refusal(tmp_path, **many, world_size=1)
    assert made_plan(tmp_path, **many, world_size=2)["fits"] is True
    assert made_plan(tmp_path, **many, world_size=0)["world_size"] == 2
    wide = {"intermediate_size": 131072}
    assert made_plan(tmp_path, **wide, world_size=0)["world_size"] == 2
    assert "with world_size 1: " in refusal(tmp_path, head_dim=320, world_size=0)


@pytest.mark.parametrize("changes", [most for most, _, _ in LIMITS.values()], ids=list(LIMITS))
def test_processors_have_no_such_limits(changes, tmp_path):
    path = tmp_path / "config.json"
    wanted = {"world_size": 1, **changes}
    world_size = wanted.pop("world_size")
    path.write_text(json.dumps(small_config(**wanted)), encoding="utf-8")
    options = {"device": "cpu", "world_size": world_size, "device_memory_bytes": TERABYTE}
    assert plan(EngineOptions(path, **options))["fits"] is True


@pytest.mark.skipif(device_kind() != "cuda", reason="this opens a GPU: --device-kind cuda")
def test_a_gpu_refuses_float32_weights(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(small_config(torch_dtype="float32")), encoding="utf-8")
    with pytest.raises(EngineError, match="got F32, which GPUs do not run") as caught:
        Engine(EngineOptions(path, device="cuda", synthetic=True))
    assert caught.value.status == Status.GLM_NOT_SUPPORTED


@pytest.mark.parametrize("fp8", [False, True])
def test_processors_run_float32_weights(fp8, tmp_path):
    config = small_config(fp8, torch_dtype="float32")
    write_random_model(tmp_path, config, seed=3)
    tokens = list(range(9))
    [expected] = numpy_logits(tmp_path, [tokens])
    with Engine(EngineOptions(tmp_path, device="cpu", max_seq=16, num_threads=1)) as engine:
        _, logits = engine.prefill(tokens, all_positions=True)
    assert relative_rms(logits, expected) < LIMIT


def test_types_of_pages_are_refused_before_a_weight_is_read(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(small_config()), encoding="utf-8")
    with pytest.raises(
        EngineError, match="device cpu does not support kv_dtype bfloat16; use float32 or fp8_e4m3"
    ) as caught:
        Engine(EngineOptions(path, device="cpu", kv_dtype=1, synthetic=True))
    assert caught.value.status == Status.GLM_NOT_SUPPORTED

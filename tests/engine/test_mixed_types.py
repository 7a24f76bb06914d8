"""Checkpoints whose `ignore` list leaves some linears of a layer unquantised."""

from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, inspect_checkpoint
from glm_engine.core.errors import EngineError, Status
from tests.golden_checks import numpy_logits
from tests.reference import configs
from tests.reference.compare import relative_rms
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tools.checkpoint.random_model import write_random_model

SIZES = configs.sizes(64, 2, (8, 2, 32), (64, 32), 98)
TOKENS = [(7 * position) % 98 for position in range(21)]
LIMIT = 0.01
SPLITS = [ONE_RANK, *(Split(2, layout) for layout in ExpertLayout)]

RUNS = {
    "shared expert BF16": r"re:.*shared_experts\..*",
    "experts BF16": r"re:.*\.experts\..*",
    "down_proj BF16": r"re:.*(mlp|shared_experts)\.down_proj",
    "gate and up BF16": r"re:.*(mlp|shared_experts)\.(gate|up)_proj",
    "attention BF16": r"re:.*self_attn\..*",
    "o_proj BF16": r"re:.*o_proj",
}

REFUSED = {
    "experts' down_proj BF16": (r"re:.*\.experts\..*down_proj", "BF16", "F8_E4M3"),
    "experts' gate and up BF16": (r"re:.*\.experts\..*(gate|up)_proj", "F8_E4M3", "BF16"),
}


def write(directory: Path, pattern: str) -> Path:
    config = configs.fp8_config(
        SIZES,
        configs.attention(qk_norm=True, bias=True),
        configs.mixture(8, 2, 1, 1, 2.0),
        ignore=(pattern,),
    )
    write_random_model(directory, config, seed=7)
    return directory


def options(directory: Path, split: Split = ONE_RANK) -> EngineOptions:
    ranks = {"world_size": split.world_size, "expert_layout": split.expert_layout.value}
    return EngineOptions(directory, device="cpu", max_seq=32, max_batch=2, num_threads=1, **ranks)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
@pytest.mark.parametrize("name", RUNS)
def test_logits_of_mixed_layers(name, split, tmp_path):
    directory = write(tmp_path, RUNS[name])
    [expected] = numpy_logits(directory, [TOKENS], split)
    with Engine(options(directory, split)) as engine:
        _, logits = engine.prefill(TOKENS, all_positions=True)
    assert np.isfinite(logits).all()
    assert relative_rms(logits, expected) < LIMIT


@pytest.mark.parametrize("name", REFUSED)
def test_experts_of_two_types_are_refused_before_loading(name, tmp_path):
    pattern, outer, inner = REFUSED[name]
    directory = write(tmp_path, pattern)
    tensor = "model.layers.1.mlp.experts.0.down_proj.weight"
    words = (
        f"the weight is {outer}, but gate_proj and up_proj of the experts in layer 1 are {inner}"
    )
    with pytest.raises(EngineError, match=words) as caught:
        Engine(options(directory))
    assert caught.value.status == Status.GLM_INVALID_CHECKPOINT
    problems = inspect_checkpoint(directory)["problems"]
    assert [problem["tensor"] for problem in problems][:1] == [tensor]

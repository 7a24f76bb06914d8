"""The engine on checkpoints whose config.json has one wrong value: the golden limits see it."""

import json
from pathlib import Path

import pytest

from tests.engine.running import open_engine
from tests.engine.test_golden import MAX_LOGIT_ROWS, prefill_logits
from tests.golden_checks import check_logits
from tests.reference.capitals import CAPITALS
from tests.reference.cases import CAPITALS_NAME
from tests.reference.compare import Kind

pytestmark = pytest.mark.groups

CHANGES = [
    ("bf16_like_4_7", "routed_scaling_factor", 1.0),
    ("bf16_like_4_7", "norm_topk_prob", False),
    ("bf16_like_4_7", "num_experts_per_tok", 2),
    ("bf16_like_4_7", "rope_theta", 10000.0),
    ("bf16_like_air", "partial_rotary_factor", 1.0),
    ("bf16_odd_sizes_no_shared", "rms_norm_eps", 1e-5),
    ("fp8_eight_ranks", "routed_scaling_factor", 1.0),
    ("fp8_eight_ranks", "rope_theta", 10000.0),
    (CAPITALS_NAME, "routed_scaling_factor", 1.0),
    (CAPITALS_NAME, "norm_topk_prob", False),
    (CAPITALS_NAME, "num_experts_per_tok", 1),
    (CAPITALS_NAME, "rope_theta", 10000.0),
]


def with_changed_config(source: Path, target: Path, key: str, value) -> Path:
    """A directory with links to the shards of source and a config.json that differs in one key."""
    target.mkdir()
    for file in source.iterdir():
        if file.name != "config.json":
            (target / file.name).symlink_to(file)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    assert config[key] != value
    (target / "config.json").write_text(json.dumps({**config, key: value}), encoding="utf-8")
    return target


@pytest.mark.parametrize(("name", "key", "value"), CHANGES)
def test_a_wrong_value_is_rejected(name, key, value, random_model, tmp_path):
    directory = CAPITALS if name == CAPITALS_NAME else random_model(name)
    wrong = with_changed_config(directory, tmp_path / "wrong", key, value)
    kinds = "|".join(kind.name for kind in Kind)
    with (
        open_engine(wrong, max_logit_rows=MAX_LOGIT_ROWS) as engine,
        pytest.raises(AssertionError, match=kinds),
    ):
        check_logits(lambda tokens: prefill_logits(engine, tokens), name, directory)

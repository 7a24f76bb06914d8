"""The engine on checkpoints whose config.json has one wrong value: the comparison sees it.

The golden limits see every such value in float32 mathematics. BF16 mathematics moves some logits
by more than a wrong value does, so there the direction is compared: how much of the way from the
reference with the right value to the one with the wrong value the engine has gone. Rounding is
spread over all logits and has next to nothing in that one direction.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.devices import is_rounded
from tests.engine.running import open_engine
from tests.engine.test_golden import MAX_LOGIT_ROWS, prefill_logits
from tests.golden_checks import check_logits, numpy_logits
from tests.reference.capitals import CAPITALS
from tests.reference.cases import CAPITALS_NAME, texts_of
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


@pytest.fixture(params=CHANGES, ids=lambda change: "-".join(map(str, change)))
def change(request, random_model, tmp_path) -> tuple[str, Path, Path]:
    """Name of a case, its checkpoint, and the same with one wrong value."""
    name, key, value = request.param
    directory = CAPITALS if name == CAPITALS_NAME else random_model(name)
    return name, directory, with_changed_config(directory, tmp_path / "wrong", key, value)


def engine_logits(directory: Path, name: str) -> list[np.ndarray]:
    with open_engine(directory, max_logit_rows=MAX_LOGIT_ROWS) as engine:
        return [prefill_logits(engine, tokens) for tokens in texts_of(name)]


def way_gone(actual: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> float:
    """The projection of actual on the line from right (0) to wrong (1)."""
    way = wrong - right
    return float(np.vdot(actual - right, way) / np.vdot(way, way))


@pytest.mark.skipif(is_rounded(), reason="these are the limits of float32 mathematics")
def test_a_wrong_value_is_rejected_by_the_golden_limits(change):
    name, directory, wrong = change
    kinds = "|".join(kind.name for kind in Kind)
    with (
        open_engine(wrong, max_logit_rows=MAX_LOGIT_ROWS) as engine,
        pytest.raises(AssertionError, match=kinds),
    ):
        check_logits(lambda tokens: prefill_logits(engine, tokens), name, directory)


def test_a_wrong_value_is_told_from_the_right_one(change):
    name, directory, wrong = change
    texts = texts_of(name)
    references = [np.concatenate(numpy_logits(path, texts)) for path in (directory, wrong)]
    for path, expected in ((directory, 0.0), (wrong, 1.0)):
        actual = np.concatenate(engine_logits(path, name))
        assert way_gone(actual, *references) == pytest.approx(expected, abs=0.25)

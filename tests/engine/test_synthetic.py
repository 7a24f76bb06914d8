"""Engines of random weights: shapes of a config.json, finite activations, layers cut."""

import json

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, Sampling, plan
from glm_engine.core.errors import EngineError
from glm_engine.core.layout import CONFIGS
from tests.engine.probes import ROOT

CONFIG = ROOT / "checkpoints" / "capitals" / "config.json"
LARGE = CONFIGS / "glm-4.5-air-fp8.json"


def synthetic_options(**options) -> EngineOptions:
    defaults = {"device": "cpu", "max_batch": 4, "max_seq": 128, "synthetic": True}
    return EngineOptions(**{"model_dir": CONFIG, **defaults, **options})


def test_activations_stay_finite_and_the_logits_near_one():
    with Engine(synthetic_options()) as engine:
        _, logits = engine.prefill(list(range(5, 60)), all_positions=True)
    assert np.isfinite(logits).all()
    assert 0.5 < logits.std() < 2.0
    assert len(set(logits.argmax(axis=1))) > 20


def test_the_same_weights_come_again():
    outcomes = []
    for _ in range(2):
        with Engine(synthetic_options()) as engine:
            state, logits = engine.prefill([1, 2, 3])
            outcomes.append((logits, engine.run_batch_decode([state], [Sampling()], 5)))
    assert np.array_equal(outcomes[0][0], outcomes[1][0])
    assert np.array_equal(outcomes[0][1], outcomes[1][1])


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("num_layers", [1, 2])
def test_layers_are_cut(num_layers, world_size):
    chosen = synthetic_options(num_layers=num_layers, world_size=world_size)
    with Engine(chosen) as engine:
        assert engine.info()["num_layers"] == num_layers
        _, logits = engine.prefill([1, 2, 3])
        assert np.isfinite(logits).all()


@pytest.mark.parametrize("layout", ["expert_parallel", "tensor_parallel"])
def test_activations_are_as_large_over_any_number_of_ranks(layout):
    """Rank 0 has one rank's embedding and the first part of its head, and all else of its own.

    So what its logits have in common with one rank's is the embedding's share of the activations.
    """
    logits = []
    for world_size in (1, 2, 4, 8):
        chosen = synthetic_options(world_size=world_size, expert_layout=layout, max_seq=256)
        with Engine(chosen) as engine:
            _, rows = engine.prefill(list(range(5, 205)), all_positions=True)
        logits.append(rows[:, : rows.shape[1] // 8].ravel())
    shares = [np.corrcoef(logits[0], others)[0, 1] for others in logits[1:]]
    assert min(shares) > 0.2
    assert max(shares) - min(shares) < 0.03


def test_a_head_on_every_rank_is_the_same(tmp_path):
    """Of 2,047 words two ranks have the whole head each; of many rows each takes a share."""
    config = json.loads(CONFIG.read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 2047}))
    chosen = synthetic_options(model_dir=tmp_path / "config.json", world_size=2, max_batch=8)
    with Engine(chosen) as engine:
        _, every = engine.prefill(list(range(8)), all_positions=True)
        _, alone = engine.prefill(list(range(8)))
    np.testing.assert_array_equal(every[-1], alone)


def test_a_plan_is_cut_too():
    planned = plan(EngineOptions(LARGE, device="cpu", synthetic=True, num_layers=3))
    whole = plan(EngineOptions(LARGE, device="cpu", synthetic=True))
    assert planned["num_parameters"] < whole["num_parameters"] / 8


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"num_layers": 1, "synthetic": False, "model_dir": CONFIG.parent},
            "only a synthetic model",
        ),
        ({"num_layers": 99}, "num_layers is 99, but .* has only 4 layers"),
        ({"synthetic": False}, "found neither"),
    ],
)
def test_refusals(options, text):
    with pytest.raises(EngineError, match=text), Engine(synthetic_options(**options)):
        pass


def test_graphs_are_refused_where_the_device_has_none():
    with (
        pytest.raises(EngineError, match=r"graphs is 1, but the device .* cannot capture graphs"),
        Engine(synthetic_options(graphs=True)),
    ):
        pass


def test_the_read_rate_is_measured():
    with Engine(synthetic_options()) as engine:
        assert engine.read_rate() > 1e8

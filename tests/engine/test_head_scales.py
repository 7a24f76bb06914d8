"""Scales of cached K and V in a checkpoint, which only a cache of E4M3 uses."""

from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import inspect_checkpoint
from glm_engine.core.errors import EngineError, Status
from glm_engine.verify.device import FP8
from tests.engine import tamper
from tests.engine.running import open_engine
from tests.engine.test_loading import logits, read_tensors, same_bits, write_tensors
from tests.reference.compare import relative_rms
from tools.bench import bits_memory

NUM_LAYERS = 3
NUM_KV_HEADS = 2
SCHEME = {"type": "float", "num_bits": 8, "symmetric": True, "dynamic": False, "strategy": "tensor"}
OWN_NAMES = ("k_scale", "v_scale")
NAMES_OF_PROJECTIONS = ("k_proj.k_scale", "v_proj.v_scale")
LIMIT_OF_CODES = 0.05
SHAPES = ((), (1,), (NUM_KV_HEADS,), (NUM_KV_HEADS, 1, 1))


def name_of(layer: int, name: str) -> str:
    return f"model.layers.{layer}.self_attn.{name}"


def scales(names=OWN_NAMES, shape=(1,), value=0.25, num_layers=NUM_LAYERS) -> dict:
    """A tensor of each name in every layer."""
    data = np.full(shape, value, np.float32).tobytes()
    return {
        name_of(layer, name): ("F32", list(shape), data)
        for layer in range(num_layers)
        for name in names
    }


@pytest.fixture
def checkpoint(tmp_path) -> Path:
    return tamper.small_checkpoint(tmp_path / "model")


def add(directory: Path, tensors: dict) -> None:
    write_tensors(directory, {**read_tensors(directory), **tensors})
    tamper.change_quantisation(directory, lambda q: q.update(kv_cache_scheme=SCHEME))


@pytest.mark.parametrize("names", [OWN_NAMES, NAMES_OF_PROJECTIONS], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_plain_cache_ignores_them(checkpoint, names, shape):
    before = logits(checkpoint)
    add(checkpoint, scales(names, shape))
    assert inspect_checkpoint(checkpoint)["problems"] == []
    assert same_bits(before, logits(checkpoint))


def without_value_of_layer_2(tensors: dict) -> None:
    del tensors[name_of(2, "v_scale")]


def value_of_layer_2(value: float, shape=(1,)):
    def change(tensors: dict) -> None:
        data = np.full(shape, value, np.float32).tobytes()
        tensors[name_of(2, "v_scale")] = ("F32", list(shape), data)

    return change


def codes_in_layer_2(tensors: dict) -> None:
    tensors[name_of(2, "v_scale")] = ("F8_E4M3", [1], b"8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_value_of_layer_2, ["missing"]),
        (value_of_layer_2(0.0), ["row 0", "greater than zero"]),
        (value_of_layer_2(-1.0), ["row 0", "greater than zero"]),
        (value_of_layer_2(float("nan")), ["row 0", "finite"]),
        (value_of_layer_2(float("inf")), ["row 0", "finite"]),
        (value_of_layer_2(0.5, (3,)), ["2 KV heads", "[3]"]),
        (codes_in_layer_2, ["BF16 or F32", "F8_E4M3"]),
    ],
)
def test_wrong_scales_are_named(checkpoint, change, words):
    tensors = scales()
    change(tensors)
    add(checkpoint, tensors)
    with pytest.raises(EngineError) as caught:
        logits(checkpoint)
    assert caught.value.status == Status.GLM_INVALID_CHECKPOINT
    for word in [name_of(2, "v_scale"), *words]:
        assert word in str(caught.value)


def test_scales_of_some_layers_alone(checkpoint):
    add(checkpoint, {name: tensor for name, tensor in scales().items() if ".0." not in name})
    with pytest.raises(EngineError, match="the model does not use this tensor"):
        logits(checkpoint)


@pytest.mark.parametrize(
    ("key", "value"),
    [("type", "int"), ("type", None), ("num_bits", 4), ("symmetric", False), ("dynamic", True)],
)
def test_other_schemes_are_refused(checkpoint, key, value):
    scheme = {**SCHEME, key: value}
    tamper.change_quantisation(checkpoint, lambda q: q.update(kv_cache_scheme=scheme))
    with pytest.raises(EngineError, match=key):
        inspect_checkpoint(checkpoint)


def test_a_cache_of_codes_uses_them(checkpoint):
    plain, unscaled = logits(checkpoint), logits(checkpoint, kv_dtype=FP8)
    add(checkpoint, scales(value=0.3))
    scaled = logits(checkpoint, kv_dtype=FP8)
    assert not same_bits(scaled, unscaled)
    assert relative_rms(scaled, plain) < LIMIT_OF_CODES


@pytest.mark.parametrize("num_layers", [NUM_LAYERS, NUM_LAYERS + 1])
def test_a_prediction_layer_may_lack_them(num_layers, tmp_path):
    checkpoint = tamper.small_checkpoint(tmp_path / "model", num_nextn_predict_layers=1)
    before = logits(checkpoint)
    add(checkpoint, scales(num_layers=num_layers))
    assert inspect_checkpoint(checkpoint)["problems"] == []
    assert same_bits(before, logits(checkpoint, speculate="mtp"))


def test_a_scale_that_the_prediction_layer_lacks_is_1(tmp_path):
    placed = []
    layer = scales(value=1.0, num_layers=NUM_LAYERS + 1)
    for number, stated in enumerate((scales(value=1.0), layer, {**layer, **scales(value=0.5)})):
        path = tmp_path / str(number)
        checkpoint = tamper.small_checkpoint(path, num_nextn_predict_layers=1)
        add(checkpoint, stated)
        options = {"kv_dtype": FP8, "speculate": "mtp"}
        with bits_memory.debug_library(), open_engine(checkpoint, **options) as engine:
            placed.append(bits_memory.weights_of(engine))
    assert placed[0] == placed[1] != placed[2]

"""What a wrong operation does to the findings: one device of two CPU devices is altered."""

import json

import numpy as np
import pytest

from glm_engine.core.layout import CAPITALS, CONFIGS
from glm_engine.verify.comparison import CASES, compare
from glm_engine.verify.device import Backend, Device
from glm_engine.verify.measures import ONE_STEP, ROUNDED
from glm_engine.verify.model_shape import model_shape
from tests.python.verify.altered import (
    AlteredDevice,
    FarReadingDevice,
    RefusingDevice,
    TwiceCountingDevice,
    one_code_wrong_of_each,
    one_row_wrong,
    scaled,
)

SHAPES = {
    "capitals": CAPITALS / "config.json",
    "glm-4.7": CONFIGS / "glm-4.7-fp8.json",
    "air": CONFIGS / "glm-4.5-air-fp8.json",
}
SHAPE = model_shape(json.loads(SHAPES["capitals"].read_text()))
FLOATS = {
    "embed": "embed",
    "embed_norm_concat": "embed",
    "reduce_add_norm_quantise": "quantise",
    "swiglu_quantise": "swiglu_quantise",
    "linear": "linear",
    "rope_table": "norm_rope_store",
    "norm_rope_store": "norm_rope_store",
    "attention": "attention",
    "route": "route",
    "experts": "experts",
    "logits": "logits",
    "sample": "sample",
}
CODED = {
    "quantise": "quantise",
    "reduce_add_norm_quantise": "quantise",
    "swiglu_quantise": "swiglu_quantise",
}
CHOSEN = {"route": ("route", np.int32), "sample": ("sample", np.int32)}


@pytest.fixture(scope="module")
def oracle():
    with Device(Backend("cpu"), 2, workspace=SHAPE.workspace()) as device:
        yield device


def findings(case, tested, oracle):
    with tested:
        return compare(case, CASES[case], tested, oracle, SHAPE)


def failed(found):
    return {each.operation.split(":")[0] for each in found if not each.passed}


def greatest(found, operation):
    return max(each.error for each in found if each.operation.split(":")[0] == operation)


@pytest.mark.parametrize("name", SHAPES)
def test_equal_devices_agree_at_every_shape(name):
    shape = model_shape(json.loads(SHAPES[name].read_text())).reduced()
    with (
        Device(Backend("cpu"), 2, workspace=shape.workspace()) as tested,
        Device(Backend("cpu"), 1, workspace=shape.workspace()) as oracle,
    ):
        for case, run in CASES.items():
            found = compare(case, run, tested, oracle, shape)
            assert found
            assert [each.error for each in found] == [0] * len(found)
            assert not failed(found)


@pytest.mark.parametrize("operation", FLOATS)
def test_a_scale_off_by_a_step_of_bf16_is_found(oracle, operation):
    tested = AlteredDevice(operation, scaled, workspace=SHAPE.workspace())
    found = findings(FLOATS[operation], tested, oracle)
    assert operation in failed(found)
    assert greatest(found, operation) > ROUNDED.limit


def test_a_scale_off_by_a_step_of_bf16_is_found_in_the_median_row_of_experts(oracle):
    tested = AlteredDevice("experts", scaled, workspace=SHAPE.workspace())
    found = {each.operation: each for each in findings("experts", tested, oracle)}
    assert found["experts: median row"].error > ROUNDED.limit
    assert found["experts: worst row"].passed


@pytest.mark.parametrize("operation", FLOATS)
def test_one_wrong_row_is_found(oracle, operation):
    tested = AlteredDevice(operation, one_row_wrong, workspace=SHAPE.workspace())
    found = findings(FLOATS[operation], tested, oracle)
    assert operation in failed(found)
    assert greatest(found, operation) > ONE_STEP.limit


@pytest.mark.parametrize("operation", CODED)
def test_wrong_codes_are_found(oracle, operation):
    tested = AlteredDevice(operation, one_code_wrong_of_each, np.uint8, SHAPE.workspace())
    assert failed(findings(CODED[operation], tested, oracle)) == {operation}


@pytest.mark.parametrize("operation", CHOSEN)
def test_wrong_choices_are_found(oracle, operation):
    case, dtype = CHOSEN[operation]
    tested = AlteredDevice(operation, lambda ids: np.zeros_like(ids), dtype, SHAPE.workspace())
    assert failed(findings(case, tested, oracle)) == {operation}


def test_one_key_past_the_end_is_found(oracle):
    found = findings("attention", FarReadingDevice(SHAPE.workspace()), oracle)
    names = {each.operation for each in found if each.error > ROUNDED.limit}
    assert names == {"attention: decode rows", "attention: prompt rows"}


def test_tokens_that_are_counted_twice_are_found(oracle):
    tested = TwiceCountingDevice(SHAPE.workspace())
    assert failed(findings("count_tokens", tested, oracle)) == {"count_tokens"}


def test_a_refusal_is_a_finding_and_what_came_before_it_is_kept(oracle):
    tested = RefusingDevice("embed_norm_concat", SHAPE.workspace())
    first, refusal = findings("embed", tested, oracle)
    assert (first.operation, first.passed) == ("embed", True)
    assert (refusal.operation, refusal.passed) == ("embed", False)
    assert refusal.message == "embed_norm_concat: not for this device"

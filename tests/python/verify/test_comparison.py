"""What a wrong operation does to the findings: one device of two CPU devices is altered."""

import json
from functools import partial

import numpy as np
import pytest

from glm_engine.core.layout import CAPITALS, CONFIGS
from glm_engine.verify.comparison import CASES, compare
from glm_engine.verify.device import Backend, Device
from glm_engine.verify.header import structs
from glm_engine.verify.measures import ONE_STEP, ROUNDED
from glm_engine.verify.model_shape import model_shape
from glm_engine.verify.rank_cases import NAME, compare_ranks
from tests.python.verify.altered import (
    SCATTERED,
    AlteredBackend,
    AlteredDevice,
    CpuDevice,
    FarReadingDevice,
    IdleDevice,
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
UNDONE = {
    **FLOATS,
    **CODED,
    "place_rows": "embed",
    "place_vector": "place_vector",
    "count_tokens": "count_tokens",
    "copy_pages": "copy_pages",
    "save_pages": "copy_pages",
    "restore_pages": "copy_pages",
    "begin_step": "begin_step",
    "accept": "begin_step",
    "begin_drafts": "begin_drafts",
    "keep_drafts": "begin_drafts",
}
NAMED = {"place_rows": "embed"}
EXCHANGES = {
    "all_gather": {"logits, gathered"},
    "all_to_all": {"logits, dealt"},
    "reduce_add_norm_quantise": {"linear, summed and normed", "experts, summed and normed"},
    SCATTERED: {"reduce_add_norm_quantise, scattered"},
}
NO_MATHEMATICS = """
device_count group_create group_abort group_free device_open device_close device_message
device_info allocate release host_allocate host_release upload download download_begin
synchronise matrix_bytes kv_page_bytes workspace_bytes set_workspace group_bind check_model
graph_begin graph_end graph_replay graph_free event_create event_record event_synchronise
event_elapsed event_free measure_read
"""
OF_EACH_KIND_ITS_OWN = {"place_random"}
CHOSEN = ("route", "sample", "begin_drafts")


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


def test_each_operation_of_the_table_is_compared_or_has_no_mathematics():
    """A new one belongs in UNDONE or EXCHANGES, whose tests leave it undone, or in the others."""
    fields = structs()["glm_backend"]._fields_
    table = {name for name, kind in fields if hasattr(kind, "argtypes")}
    compared = (UNDONE.keys() | EXCHANGES.keys()) - {SCATTERED}
    others = {*NO_MATHEMATICS.split(), *OF_EACH_KIND_ITS_OWN}
    assert compared | others == table
    assert not compared & others


@pytest.mark.filterwarnings("error")
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


@pytest.mark.parametrize("operation", UNDONE)
def test_an_operation_that_is_left_undone_is_found(oracle, operation):
    tested = IdleDevice(operation, workspace=SHAPE.workspace())
    assert NAMED.get(operation, operation) in failed(findings(UNDONE[operation], tested, oracle))


@pytest.mark.parametrize("operation", CODED)
def test_wrong_codes_are_found(oracle, operation):
    tested = AlteredDevice(operation, one_code_wrong_of_each, np.uint8, workspace=SHAPE.workspace())
    assert failed(findings(CODED[operation], tested, oracle)) == {operation}


@pytest.mark.parametrize("operation", CHOSEN)
def test_wrong_choices_are_found(oracle, operation):
    tested = AlteredDevice(operation, np.zeros_like, np.int32, workspace=SHAPE.workspace())
    assert failed(findings(operation, tested, oracle)) == {operation}


def test_one_key_past_the_end_is_found(oracle):
    found = findings("attention", FarReadingDevice(workspace=SHAPE.workspace()), oracle)
    names = {each.operation for each in found if each.error > ROUNDED.limit}
    assert names == {"attention: decode rows", "attention: prompt rows"}


def test_tokens_that_are_counted_twice_are_found(oracle):
    tested = TwiceCountingDevice(workspace=SHAPE.workspace())
    assert failed(findings("count_tokens", tested, oracle)) == {"count_tokens"}


def test_a_refusal_is_a_finding_and_what_came_before_it_is_kept(oracle):
    tested = RefusingDevice("embed_norm_concat", workspace=SHAPE.workspace())
    first, refusal = findings("embed", tested, oracle)
    assert (first.operation, first.passed) == ("embed", True)
    assert (refusal.operation, refusal.passed) == ("embed", False)
    assert refusal.message == "embed_norm_concat: not for this device"


def ranks_of(make):
    """The findings of two ranks that `make` opens, beside a sound device alone."""
    with CpuDevice(AlteredBackend(make), workspace=SHAPE.workspace()) as alone:
        return compare_ranks(alone, SHAPE)


@pytest.mark.parametrize("operation", EXCHANGES)
def test_an_exchange_that_is_left_undone_is_found(operation):
    assert failed(ranks_of(partial(IdleDevice, operation))) == EXCHANGES[operation]


@pytest.mark.parametrize("alter", [scaled, one_row_wrong])
@pytest.mark.parametrize("operation", EXCHANGES)
def test_a_wrong_exchange_is_found(operation, alter):
    found = ranks_of(partial(AlteredDevice, operation, alter))
    assert failed(found) == EXCHANGES[operation]
    assert all(greatest(found, each) > ROUNDED.limit for each in EXCHANGES[operation])


def test_wrong_codes_of_scattered_rows_are_found():
    found = ranks_of(partial(AlteredDevice, SCATTERED, one_code_wrong_of_each, np.uint8))
    assert failed(found) == EXCHANGES[SCATTERED]


def test_a_rank_that_fails_ends_all_and_is_a_finding():
    *found, refusal = ranks_of(partial(RefusingDevice, "all_to_all"))
    assert refusal.operation == NAME
    assert refusal.message == "all_to_all: not for this device"
    assert not failed(found)
    assert {each.operation for each in found} >= EXCHANGES["all_gather"]

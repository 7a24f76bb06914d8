"""The types of the engine's reports against the reports of a small model."""

from typing import Literal, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from glm_engine.core import abi, reports
from glm_engine.core.engine import Engine, EngineOptions, find_gpus, inspect_checkpoint, plan
from glm_engine.core.layout import CAPITALS

OPTIONS = {"device": "cpu", "num_pages": 16}


def faults(value, kind, place="report"):
    """The places at which a value is not of its type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        if not isinstance(value, dict) or value.keys() != hints.keys():
            return [place]
        parts = [(value[name], hint, f"{place}.{name}") for name, hint in hints.items()]
    elif origin is Literal:
        return [] if value in arguments else [place]
    elif origin is list:
        parts = [(one, arguments[0], f"{place}[]") for one in value]
    elif origin is dict:
        parts = [(one, arguments[1], f"{place}{{}}") for one in value.values()]
    else:
        return [] if type(value) is kind else [place]
    return [fault for part in parts for fault in faults(*part)]


@pytest.fixture(scope="module")
def engine():
    with Engine(EngineOptions(CAPITALS, **OPTIONS)) as engine:
        yield engine


def test_plan_inspection_and_gpus():
    assert faults(plan(EngineOptions(CAPITALS, **OPTIONS)), reports.Plan) == []
    assert faults(inspect_checkpoint(CAPITALS), reports.Inspection) == []
    assert faults(find_gpus(), reports.FoundGpus) == []


def test_info_and_profile(engine):
    assert faults(engine.info(), reports.EngineInfo) == []
    engine.begin_profile()
    engine.prefill([1, 2, 3])
    assert faults(engine.end_profile(), reports.Profile) == []


def test_steps_have_the_fields_of_the_header():
    fields = [name for name, *_ in abi.STRUCTS["engine_step"]]
    assert list(reports.Step.__annotations__) == fields


def test_a_fault_is_found(engine):
    info = engine.info()
    assert faults(info | {"max_seq": "4096"}, reports.EngineInfo) == ["report.max_seq"]
    assert faults(info | {"max_seq_from": "nowhere"}, reports.EngineInfo) == ["report.max_seq_from"]
    assert faults(info | {"more": 1}, reports.EngineInfo) == ["report"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("CPU", "cpu"), ("Futhark", "futhark"), ("Futhark, Tesla T4", "futhark"), ("H200", "cuda")],
)
def test_the_name_of_a_device_tells_its_kind(name, kind):
    assert reports.device_kind(name) == kind

"""The kind of device that tests of the engine run on: `pytest --device-kind`."""

import os
from functools import cache

import pytest

from glm_engine.verify.facts import FACTS

VARIABLE = "GLM_TEST_DEVICE"
SHARING_VARIABLE = "GLM_TEST_RANKS_PER_DEVICE"
LEAST_PAGE = {"cpu": 1, "futhark": 1, "cuda": 16}


def device_kind() -> str:
    return os.environ.get(VARIABLE, "cpu")


def is_rounded() -> bool:
    """Whether activations are rounded to BF16, so that the limits of BF16 mathematics hold."""
    return device_kind() == "cuda"


def caches_answers() -> bool:
    """Whether answers' pages enter the prefix cache: where attention has one arithmetic."""
    return FACTS[device_kind()].has_one_attention


@cache
def fewest_scattered_rows() -> int:
    """From how many rows of a step on each rank keeps its share of them."""
    from glm_engine.verify.device import Backend

    with Backend(device_kind()).device() as device:
        return device.info.fewest_scattered_rows


@cache
def num_devices(kind: str) -> int:
    from glm_engine.verify.device import Backend

    return Backend(kind).device_count()


def most_ranks_per_device() -> int:
    """How many ranks of a group may share a device: `pytest --ranks-per-device`."""
    return int(os.environ.get(SHARING_VARIABLE, "1"))


def most_ranks(kind: str) -> int:
    """The largest group that a machine opens."""
    return 8 if kind == "cpu" else max(num_devices(kind), most_ranks_per_device())


def ranks_per_device(kind: str, world_size: int) -> int:
    """All on one where there are too few devices; on CPUs 1, which is how the engine calls them."""
    return 1 if kind == "cpu" or world_size <= num_devices(kind) else world_size


def expect_ranks(world_size: int) -> None:
    """Skips where the machine has no room for them."""
    if world_size > most_ranks(device_kind()):
        pytest.skip(f"expected {world_size} GPUs, got {most_ranks(device_kind())}")


def chosen_options(world_size: int, page_size: int | None = None, **options) -> dict:
    """Options of an engine on the chosen device, with pages that it can have."""
    kind = device_kind()
    expect_ranks(world_size)
    if page_size is not None:
        step = LEAST_PAGE[kind]
        options["page_size"] = -(-page_size // step) * step
    sharing = ranks_per_device(kind, world_size)
    return {"device": kind, "world_size": world_size, "ranks_per_device": sharing, **options}

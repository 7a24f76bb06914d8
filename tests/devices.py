"""The kind of device that tests of the engine run on: `pytest --device-kind`."""

import os
from functools import cache

import pytest

VARIABLE = "GLM_TEST_DEVICE"
LEAST_PAGE = {"cpu": 1, "cuda": 16}


def device_kind() -> str:
    return os.environ.get(VARIABLE, "cpu")


def is_rounded() -> bool:
    """Whether activations are rounded to BF16, so that the limits of BF16 mathematics hold."""
    return device_kind() == "cuda"


@cache
def most_ranks(kind: str) -> int:
    """The largest group that a machine opens: on CPUs 8, else one rank a device."""
    from tests.native.backend import Backend

    return 8 if kind == "cpu" else Backend(kind).device_count()


def chosen_options(world_size: int, page_size: int | None = None, **options) -> dict:
    """Options of an engine on the chosen device, with pages that it can have."""
    kind = device_kind()
    if world_size > most_ranks(kind):
        pytest.skip(f"expected {world_size} GPUs, got {most_ranks(kind)}")
    if page_size is not None:
        step = LEAST_PAGE[kind]
        options["page_size"] = -(-page_size // step) * step
    return {"device": kind, "world_size": world_size, **options}

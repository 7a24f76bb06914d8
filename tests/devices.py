"""The kind of device that tests of the engine run on: `pytest --device-kind`."""

import os

import pytest

VARIABLE = "GLM_TEST_DEVICE"
LEAST_PAGE = {"cpu": 1, "cuda": 16}
MOST_RANKS = {"cpu": 8, "cuda": 1}


def device_kind() -> str:
    return os.environ.get(VARIABLE, "cpu")


def is_rounded() -> bool:
    """Whether activations are rounded to BF16, so that the limits of BF16 mathematics hold."""
    return device_kind() == "cuda"


def chosen_options(world_size: int, page_size: int | None = None, **options) -> dict:
    """Options of an engine on the chosen device, with pages that it can have."""
    kind = device_kind()
    if world_size > MOST_RANKS[kind]:
        pytest.skip(f"device {kind} opens {MOST_RANKS[kind]} rank, not {world_size}")
    if page_size is not None:
        step = LEAST_PAGE[kind]
        options["page_size"] = -(-page_size // step) * step
    return {"device": kind, "world_size": world_size, **options}

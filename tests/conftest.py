import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import groups
from tests.devices import SHARING_VARIABLE, VARIABLE

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

os.environ.setdefault("HF_HUB_OFFLINE", "1")

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


def pytest_addoption(parser) -> None:
    parser.addoption(
        "--device-kind",
        default="cpu",
        help="device that tests/native, tests/engine and tests/server use",
    )
    parser.addoption(
        "--ranks-per-device",
        default="1",
        choices=["1", "2", "4", "8"],
        help="the largest group that may share one GPU where there are fewer GPUs than ranks",
    )


def pytest_configure(config) -> None:
    os.environ[VARIABLE] = config.getoption("--device-kind")
    os.environ[SHARING_VARIABLE] = config.getoption("--ranks-per-device")
    config.addinivalue_line("markers", "groups: uses an optional group of tools/develop")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if vars(item.module).get("groups") is groups:
            item.add_marker("groups")


def pytest_report_header() -> str:
    from tests.shapes import seed_note

    return f"shapes and data: {seed_note()}"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> Callable[[str], Path]:
    """Name of a configuration of tests/reference/configs.py → its checkpoint on disk."""
    from tests.reference.models import ensure_model

    directory = tmp_path_factory.mktemp("models")
    return lambda name: ensure_model(name, directory)

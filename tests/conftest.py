from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shapes import seed_note


def pytest_report_header() -> str:
    return f"shapes and data: {seed_note()}"


@pytest.fixture(scope="session")
def random_model(tmp_path_factory) -> Callable[[str], Path]:
    """Name of a configuration of tests/reference/configs.py → its checkpoint on disk."""
    from tests.reference.models import ensure_model

    directory = tmp_path_factory.mktemp("models")
    return lambda name: ensure_model(name, directory)

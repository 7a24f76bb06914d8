from pathlib import Path

import pytest

from tests.release.environments import Environment, make_environment
from tools.release.wheel import make_wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """The wheel of the CPU device, made of what lies in build/."""
    return make_wheel(["cpu"], tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel, tmp_path_factory) -> Environment:
    """An environment with the wheel, whose package nobody may write into."""
    made = make_environment(tmp_path_factory.mktemp("environment"))
    folder = ["--no-index", "--find-links", wheel.parent]
    made.pip("install", "--no-compile", *folder, "glm-engine")
    package = made.packages / "glm_engine"
    for path in [package, *package.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    return made

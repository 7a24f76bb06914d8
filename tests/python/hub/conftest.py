import itertools

import pytest

from tests.python.hub.hub_server import LoopbackHub
from tests.python.hub.running import Nursery


@pytest.fixture(scope="session")
def running_hub():
    hub = LoopbackHub()
    yield hub
    hub.close()


@pytest.fixture
def hub(running_hub):
    """The one hub, with ordinary behaviour and nothing asked yet."""
    running_hub.reset()
    return running_hub


@pytest.fixture(scope="session")
def nursery(running_hub, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    made = Nursery(running_hub.endpoint, folder / "home", folder)
    yield made
    made.close()


@pytest.fixture(scope="session")
def numbers():
    return itertools.count(1)


@pytest.fixture
def name(numbers):
    """A model's name that no other test uses."""
    return f"zai-org/GLM-{next(numbers)}-FP8"

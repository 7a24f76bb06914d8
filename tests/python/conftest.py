import pytest

from tests.python.load.serving import PreparedServer


@pytest.fixture(scope="session")
def running_server():
    server = PreparedServer()
    yield server
    server.close()


@pytest.fixture
def server(running_server):
    """The one prepared server, with nothing seen and ordinary behaviour."""
    running_server.reset()
    return running_server

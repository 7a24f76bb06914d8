from collections.abc import Callable, Iterator

import openai
import pytest

from tests.endless import OPTIONS, link_endless_model
from tests.server.serving import ServerProcess


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[ServerProcess]:
    """`glm serve` on capitals, one for the whole session."""
    running = ServerProcess(tmp_path_factory.mktemp("serve"))
    yield running
    code = running.stop()
    assert code == 0, running.log()
    assert "Traceback" not in running.log()


@pytest.fixture(scope="session")
def endless_model(tmp_path_factory) -> tuple:
    """The options of a server whose answers take minutes, for tests that end them."""
    return ("--model", link_endless_model(tmp_path_factory.mktemp("endless")), *OPTIONS)


@pytest.fixture(scope="session")
def endless_server(tmp_path_factory, endless_model) -> Iterator[ServerProcess]:
    """Such a server, one for the whole session."""
    running = ServerProcess(tmp_path_factory.mktemp("serve"), *endless_model)
    yield running
    assert running.stop() == 0, running.log()
    assert "Traceback" not in running.log()


@pytest.fixture
def client(server) -> Iterator[openai.OpenAI]:
    with server.openai() as made:
        yield made


@pytest.fixture
def start_server(tmp_path) -> Iterator[Callable]:
    """Start servers of a test's own; they are ended with the test."""
    started = []

    def start(*arguments, **options):
        folder = tmp_path / f"serve{len(started)}"
        folder.mkdir()
        started.append(ServerProcess(folder, *arguments, **options))
        return started[-1]

    yield start
    for one in started:
        one.stop()

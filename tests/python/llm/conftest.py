from collections.abc import Iterator

import pytest

from glm_engine import LLM
from tests.server.serving import ServerProcess


@pytest.fixture(scope="session")
def llm() -> Iterator[LLM]:
    """`capitals` in this process, one for the whole session."""
    with LLM(device="cpu", num_threads=1, quiet=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def server(tmp_path_factory) -> Iterator[ServerProcess]:
    """`glm serve` on the same model."""
    running = ServerProcess(tmp_path_factory.mktemp("serve"), "--device", "cpu")
    yield running
    assert running.stop() == 0, running.log()

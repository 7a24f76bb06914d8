from collections.abc import Iterator

import anthropic
import pytest


@pytest.fixture
def claude(server) -> Iterator[anthropic.Anthropic]:
    """Anthropic's own client, talking to `glm serve`."""
    with anthropic.Anthropic(
        base_url=server.url, api_key="none", max_retries=0, timeout=60
    ) as client:
        yield client

"""schemathesis over the description of Anthropic's endpoints."""

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode

PATHS = ("/v1/messages", "/v1/messages/count_tokens")
MOST_TOKENS = 8


def check(answer):
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        body = answer.json()
        assert body["type"] == "error"
        assert set(body["error"]) - {"details"} == {"type", "message"}


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("path", PATHS)
def test_no_request_breaks_the_server(server, path, mode):
    description = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    statuses = set()

    @hypothesis.given(case=description[path]["POST"].as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=12,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def ask(case):
        if isinstance(case.body, dict):
            if type(case.body.get("max_tokens")) is int:
                case.body["max_tokens"] = min(case.body["max_tokens"], MOST_TOKENS)
            if mode is GenerationMode.POSITIVE and "model" in case.body:
                case.body["model"] = server.model
        answer = case.call(timeout=60)
        statuses.add(answer.status_code)
        check(answer)

    ask()
    server.wait_until_idle()
    assert statuses & {200, 400}

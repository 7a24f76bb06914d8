"""schemathesis over the OpenAPI description: wrong requests are refused, nothing breaks."""

import hypothesis
import pytest
import schemathesis
from schemathesis import GenerationMode

MAX_EXAMPLES = 12
OPERATIONS = (
    ("/v1/completions", "POST"),
    ("/v1/chat/completions", "POST"),
    ("/v1/responses", "POST"),
    ("/tokenize", "POST"),
    ("/detokenize", "POST"),
)
CASES = [(*operation, mode) for operation in OPERATIONS for mode in GenerationMode]
ANY_NAME = ("/v1/models/{name}", "GET", GenerationMode.POSITIVE)
ERROR_KEYS = {"message", "type", "param", "code"}


@pytest.fixture(scope="module")
def description(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


def lengths_of(path):
    if path == "/v1/responses":
        return (("max_output_tokens", 8),)
    return (("max_tokens", 8), ("n", 4))


def bounded(case, path):
    """Keep short what is generated; chat would otherwise fill the context."""
    if isinstance(case.body, dict) and path.startswith("/v1/"):
        case.body.pop("max_completion_tokens", None)
        for name, most in lengths_of(path):
            value = case.body.get(name)
            if value is None or type(value) is int:
                case.body[name] = most if value is None else min(value, most)
    return case


def check(answer):
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert set(error) == ERROR_KEYS
        assert "Traceback" not in error["message"]


@pytest.mark.parametrize(("path", "method", "mode"), [*CASES, ANY_NAME])
def test_no_request_breaks_the_server(server, description, path, method, mode) -> None:
    strategy = description[path][method].as_strategy(generation_mode=mode)

    @hypothesis.given(case=strategy)
    @hypothesis.settings(
        max_examples=MAX_EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    def ask(case):
        check(bounded(case, path).call(timeout=60))

    ask()
    server.wait_until_idle()

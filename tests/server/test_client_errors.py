"""Every class of error that the official clients know, from a server with small limits."""

import shutil
import signal
from contextlib import contextmanager

import anthropic
import openai
import pytest

from glm_engine.cli.options import CAPITALS
from tests.server.raw import connect, post
from tests.server.serving import ENDLESS, MODEL, QUESTION, ServerProcess

KEY = "secret"
MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def small(tmp_path_factory, endless_model):
    """A server with a key, room for two requests, little room for bodies, and no template."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "tokenizer").mkdir()
    shutil.copy(CAPITALS / "tokenizer.json", folder / "tokenizer")
    running = ServerProcess(
        folder,
        *endless_model,
        *("--tokenizer", folder / "tokenizer", "--max-batch", 1, "--max-queue", 1),
        *("--max-body-size", "64KiB"),
        environment={"GLM_API_KEYS": KEY},
    )
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


def ask_openai(server, key, **fields):
    with server.openai(api_key=key) as client:
        client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **fields})


def ask_anthropic(server, key, **fields):
    asked = {"model": MODEL, "messages": MESSAGES, "max_tokens": 8, **fields}
    with anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0) as client:
        client.messages.create(**asked)


def kind_of(error):
    """Return what the body calls the error, in either of the two forms."""
    body = error.body.get("error", error.body)
    assert body["message"]
    return body["type"]


@contextmanager
def streams(server, count):
    """Keep the server busy with so many endless streams."""
    fields = f"authorization: Bearer {KEY}"
    held = [connect(server) for _ in range(count)]
    for number, one in enumerate(held, 1):
        one.sendall(post("/v1/completions", ENDLESS, fields))
        server.wait_for_gauges(live_requests=number)
    yield
    for one in held:
        one.close()


WRONG = [
    ({"messages": []}, KEY, 400, ("BadRequestError", "BadRequestError"), "invalid_request_error"),
    ({}, "wrong", 401, ("AuthenticationError", "AuthenticationError"), "authentication_error"),
    ({"model": "other"}, KEY, 404, ("NotFoundError", "NotFoundError"), "not_found_error"),
    (
        {"messages": [{"role": "user", "content": "x" * 70_000}]},
        *(KEY, 413, ("APIStatusError", "RequestTooLargeError"), "request_too_large"),
    ),
    ({}, KEY, 422, ("UnprocessableEntityError",) * 2, "invalid_request_error"),
]


@pytest.mark.parametrize(("fields", "key", "status", "names", "kind"), WRONG)
def test_requests_that_are_wrong(small, fields, key, status, names, kind) -> None:
    for module, ask, name in zip(
        (openai, anthropic), (ask_openai, ask_anthropic), names, strict=True
    ):
        with pytest.raises(getattr(module, name)) as caught:
            ask(small, key, **fields)
        assert caught.value.status_code == status
        assert kind_of(caught.value) == kind
        assert len(caught.value.request_id) == 32


def test_a_server_that_is_full(small) -> None:
    with streams(small, 2):
        for module, ask in ((openai, ask_openai), (anthropic, ask_anthropic)):
            with pytest.raises(module.RateLimitError) as caught:
                ask(small, KEY)
            assert int(caught.value.response.headers["retry-after"]) >= 1
            assert kind_of(caught.value) == "rate_limit_error"
    small.wait_until_idle()


def test_a_server_that_shuts_down(small) -> None:
    with streams(small, 1):
        small.send_signal(signal.SIGTERM)
        small.wait_for_gauges(is_draining=True)
        with pytest.raises(openai.InternalServerError) as caught:
            ask_openai(small, KEY)
        assert (caught.value.status_code, caught.value.code) == (503, "draining")
        with pytest.raises(anthropic.ServiceUnavailableError) as caught:
            ask_anthropic(small, KEY)
        assert kind_of(caught.value) == "overloaded_error"
    assert small.wait() == 0


def test_a_server_that_is_gone(small) -> None:
    for module, ask in ((openai, ask_openai), (anthropic, ask_anthropic)):
        with pytest.raises(module.APIConnectionError):
            ask(small, KEY)

"""What a browser lets a page of another origin read: nothing, unless an option says so."""

import re

import pytest

from tests.server.serving import ENDLESS, QUESTION

COMPLETIONS = "/v1/completions"
PAGE, OTHER = "http://page.home.org:3000", "http://other.org"
KEY = "a-key"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    from tests.server.serving import ServerProcess

    folder = tmp_path_factory.mktemp("shared")
    environment = {"GLM_API_KEYS": KEY}
    running = ServerProcess(
        folder, "--allowed-origin", PAGE, "--allowed-origin", "null", environment=environment
    )
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log()


def of_cors(answer):
    return {name for name in answer.headers if name.startswith("access-control-")}


def preflight(server, origin, **headers):
    return server.http.options(COMPLETIONS, headers={"origin": origin, **ASKS, **headers})


def test_without_the_option_no_answer_says_a_word(server) -> None:
    for answer in (
        preflight(server, PAGE),
        server.http.get("/v1/models", headers={"origin": PAGE}),
        server.http.post(COMPLETIONS, json={"prompt": QUESTION}, headers={"origin": PAGE}),
    ):
        assert of_cors(answer) == set()
    assert preflight(server, PAGE).status_code == 405


@pytest.mark.parametrize("origin", [PAGE, "null"])
def test_a_page_may_ask_without_a_key_whether_it_may_ask(shared, origin) -> None:
    answer = preflight(shared, origin, **{"access-control-request-private-network": "true"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origin
    assert "POST" in answer.headers["access-control-allow-methods"]
    asked = ASKS["access-control-request-headers"]
    assert answer.headers["access-control-allow-headers"] == asked
    assert answer.headers["access-control-allow-private-network"] == "true"
    assert "access-control-allow-credentials" not in answer.headers
    assert "Origin" in answer.headers["vary"]
    assert answer.headers["x-request-id"]


def test_other_origins_are_told_no(shared) -> None:
    answer = preflight(shared, OTHER)
    assert answer.status_code == 400
    assert "access-control-allow-origin" not in answer.headers
    headers = {"origin": OTHER, "authorization": f"Bearer {KEY}"}
    answer = shared.http.get("/v1/models", headers=headers)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("path", "fields", "key", "status"),
    [
        (COMPLETIONS, {"prompt": QUESTION}, KEY, 200),
        (COMPLETIONS, {**ENDLESS, "max_tokens": 3}, KEY, 200),
        (COMPLETIONS, {"prompt": QUESTION}, "another", 401),
        (COMPLETIONS, {}, KEY, 400),
        ("/v1/messages", {}, KEY, 400),
        ("/v1/nothing", {}, KEY, 404),
        (COMPLETIONS, {"prompt": "x" * 33 * 2**20}, KEY, 413),
    ],
)
def test_every_answer_may_be_read(shared, path, fields, key, status) -> None:
    headers = {"origin": PAGE, "authorization": f"Bearer {key}"}
    answer = shared.http.post(path, json=fields, headers=headers)
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == PAGE
    shown = re.split(", *", answer.headers["access-control-expose-headers"])
    assert {"x-request-id", "retry-after"} <= set(shown)
    assert answer.headers["x-request-id"]


def test_any_origin(start_server) -> None:
    server = start_server("--allowed-origin", "*")
    assert preflight(server, OTHER).headers["access-control-allow-origin"] == "*"
    answer = server.http.get("/nothing", headers={"origin": OTHER})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, "*")
    refused = server.http.get("/v1/models", headers={"origin": OTHER, "host": "elsewhere.org"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (403, "*")

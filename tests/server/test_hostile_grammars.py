"""Grammars made to keep the compiler busy: how many may wait, who does not wait for them, and
what is left once their clients have gone."""

import time

import pytest

from tests.server.serving import QUESTION
from tests.server.test_drain import CHAT, start_compiling

COMPLETIONS = "/v1/completions"
REFUSED = '"status":429'


@pytest.fixture
def hostile():
    """Connections of requests for costly grammars."""
    made = []
    yield made
    for one in made:
        one.close()


def asked_with(server, pattern):
    fields = {"prompt": QUESTION, "max_tokens": 3, "guided_regex": pattern}
    return server.http.post(COMPLETIONS, json=fields)


def fill_the_line(server, hostile):
    """Let more costly grammars wait than may, and return when a further one is refused."""
    num_refused = server.log().count(REFUSED)
    while server.log().count(REFUSED) == num_refused:
        hostile.append(start_compiling(server, len(hostile)))
        time.sleep(0.02)
    while (refused := asked_with(server, f"another {len(hostile)}")).status_code != 429:
        hostile.append(start_compiling(server, len(hostile)))
    return refused


def test_hostile_grammars_hold_up_neither_known_ones_nor_other_requests(
    start_server, hostile
) -> None:
    server = start_server("--drain-seconds", 0.5)
    assert asked_with(server, "Par(is|ade)").status_code == 200
    refused = fill_the_line(server, hostile)
    assert refused.json()["error"]["code"] == "grammars_full"
    assert int(refused.headers["retry-after"]) >= 1
    assert asked_with(server, "Par(is|ade)").status_code == 200
    assert server.http.post(COMPLETIONS, json={"prompt": QUESTION}).status_code == 200
    assert fill_the_line(server, hostile).status_code == 429
    for one in hostile:
        one.close()
    server.wait_for_log(f'"endpoint":"{CHAT}"', len(hostile))
    assert '"status":499' in server.log()
    assert server.metric("glm_requests_inside") == 0
    assert asked_with(server, "Paris|more").status_code == 200

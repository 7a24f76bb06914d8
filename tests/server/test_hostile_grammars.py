"""Grammars made to keep the compiler busy: how long others wait, who does not wait for them, and
what is left once their clients have gone."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.server.serving import QUESTION
from tests.server.test_drain import CHAT, start_compiling

COMPLETIONS = "/v1/completions"
NUM_HOSTILE = 8


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


def test_hostile_grammars_hold_up_neither_known_ones_nor_other_requests(
    start_server, hostile
) -> None:
    server = start_server("--drain-seconds", 0.5)
    assert asked_with(server, "Par(is|ade)").status_code == 200
    hostile += [start_compiling(server, at) for at in range(NUM_HOSTILE)]
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(asked_with, server, "another")
        assert asked_with(server, "Par(is|ade)").status_code == 200
        assert server.http.post(COMPLETIONS, json={"prompt": QUESTION}).status_code == 200
        refused = late.result()
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "grammars_full")
    assert int(refused.headers["retry-after"]) >= 1


def test_hostile_grammars_leave_the_line_with_their_clients(start_server, hostile) -> None:
    """All but the first, whose five seconds may be over where this process stood still."""
    server = start_server("--drain-seconds", 0.5)
    hostile += [start_compiling(server, at) for at in range(NUM_HOSTILE)]
    for one in hostile:
        one.close()
    server.wait_for_log(f'"endpoint":"{CHAT}"', len(hostile))
    assert server.log().count('"status":499') >= len(hostile) - 1
    assert server.metric("glm_requests_inside") == 0
    while (answer := asked_with(server, "Paris|more")).status_code == 429:
        assert answer.json()["error"]["code"] == "grammars_full"
    assert answer.status_code == 200

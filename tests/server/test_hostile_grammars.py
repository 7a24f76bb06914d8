"""Grammars made to keep the compiler busy: how many may wait, and who does not wait for them."""

import select

from glm_engine.grammar import Limits
from tests.server.raw import read_until
from tests.server.serving import QUESTION
from tests.server.test_drain import start_compiling, status_of

COMPLETIONS = "/v1/completions"
LIMITS = Limits()


def asked_with(server, pattern):
    fields = {"prompt": QUESTION, "max_tokens": 3, "guided_regex": pattern}
    return server.http.post(COMPLETIONS, json=fields)


def test_hostile_grammars_hold_up_neither_known_ones_nor_other_requests(start_server) -> None:
    server = start_server("--drain-seconds", 0.5)
    assert asked_with(server, "Par(is|ade)").status_code == 200
    hostile = [start_compiling(server, number) for number in range(LIMITS.num_waiting + 1)]
    [refused], _, _ = select.select(hostile, [], [], LIMITS.seconds)
    answer = read_until(refused, b"}}")
    assert status_of(answer) == 429
    assert b'"code":"grammars_full"' in answer
    assert b"\r\nretry-after: " in answer
    assert asked_with(server, "Par(is|ade)").status_code == 200
    assert server.http.post(COMPLETIONS, json={"prompt": QUESTION}).status_code == 200
    assert asked_with(server, "one more").status_code == 429
    for one in hostile:
        one.close()

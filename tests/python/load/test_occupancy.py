"""What is seen of a server's gauges, when, and what is made of it."""

import json
import time
from itertools import pairwise

import pytest

from glm_engine.load.http_client import parse_address
from glm_engine.load.occupancy import LOOK_SECONDS, Watch, gauges_of_server, over_time

SEEN = {"batch_occupancy": 0.25, "kv_utilisation": 0.5, "waiting_requests": 3}
PATIENCE = 60


def wait_for_rows(watch, count):
    until = time.monotonic() + PATIENCE
    while len(watch.rows) < count:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_server_is_looked_at_until_the_block_ends(server):
    server.reset(gauges={**SEEN, "model": "any"})
    began = time.monotonic()
    with Watch(parse_address(server.url)) as watch:
        wait_for_rows(watch, 2)
        server.reset(gauges=SEEN | {"waiting_requests": 4})
        wait_for_rows(watch, 4)
    watch.thread.join(PATIENCE)
    assert not watch.thread.is_alive()
    rows = over_time(watch.rows, began, time.monotonic())
    assert len(rows) == len(watch.rows)
    waiting = [row["waiting_requests"] for row in rows]
    assert waiting == sorted(waiting)
    assert set(waiting) == {3, 4}
    assert all((row["batch_occupancy"], row["kv_utilisation"]) == (0.25, 0.5) for row in rows)
    gaps = [later["seconds"] - row["seconds"] for row, later in pairwise(rows)]
    assert min(gaps) >= 0.9 * LOOK_SECONDS
    assert rows[0]["seconds"] >= 0


def test_a_look_that_fails_leaves_a_gap(server):
    server.reset(gauges=SEEN)
    with Watch(parse_address(server.url)) as watch:
        wait_for_rows(watch, 1)
        server.reset(gauges=None)
        looks = server.looks
        while server.looks == looks:
            time.sleep(0.01)
        count = len(watch.rows)
        server.reset(gauges=SEEN)
        wait_for_rows(watch, count + 2)
    watch.thread.join(PATIENCE)
    assert not watch.thread.is_alive()


@pytest.mark.parametrize("gauges", [None, {}, {**SEEN, "kv_utilisation": "much"}, [1], [[]]])
def test_a_server_without_gauges_is_asked_once(server, gauges):
    server.reset(gauges=gauges)
    looks = server.looks
    with Watch(parse_address(server.url)) as watch:
        watch.thread.join(PATIENCE)
        assert not watch.thread.is_alive()
    assert watch.rows == []
    assert server.looks == looks + 1


def test_gauges_that_are_none_are_not_taken(server):
    for name in SEEN:
        for value in (None, True, "1", [1], -1, 1e308, 1.5):
            server.reset(gauges=SEEN | {name: value})
            assert gauges_of_server(parse_address(server.url)) is None
        server.reset(gauges={other: value for other, value in SEEN.items() if other != name})
        assert gauges_of_server(parse_address(server.url)) is None
    server.reset(gauges=json.loads(json.dumps(SEEN)))
    assert gauges_of_server(parse_address(server.url)) == [0.25, 0.5, 3]


def test_rows_belong_to_the_rate_in_which_they_were_seen():
    rows = [(float(at), at / 10, 0.0, at) for at in range(10)]
    first, second = over_time(rows, 1.0, 4.0), over_time(rows, 4.5, 8.0)
    assert [row["seconds"] for row in first] == [0, 1, 2, 3]
    assert [row["waiting_requests"] for row in second] == [5, 6, 7, 8]
    assert over_time(rows, 20.0, 30.0) is over_time([], 0.0, 1.0) is None

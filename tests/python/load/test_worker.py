"""Requests over real sockets, against what the prepared server saw and did."""

import math

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.load.figures import make_figures
from glm_engine.load.http_client import parse_address
from glm_engine.load.processes import run_asks
from glm_engine.load.server_metrics import difference, read_counters
from glm_engine.load.target import Target
from glm_engine.load.workload import Ask
from tests.python.load.serving import FOREVER, MODEL

PROMPT = [5, 6, 7]
SLACK = 30.0
TIMER_STEP = 0.002


def asks_at(*dues, max_tokens=4):
    return [Ask(due, PROMPT, max_tokens) for due in dues]


def run(server, asks, limit=None, timeout=120.0, num_workers=1, **kind):
    target = Target(parse_address(server.url), MODEL, kind.pop("endpoint", "completions"), **kind)
    outcomes = run_asks(target, asks, limit, timeout, num_workers)
    return make_figures(math.inf, outcomes, {}), outcomes


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
@pytest.mark.parametrize("piece", [0, 7])
def test_figures_are_those_of_the_server(server, endpoint, piece):
    server.reset(delay=0.1, gap=0.02, piece=piece)
    prompt = "a text" if endpoint == "chat" else PROMPT
    asks = [Ask(0.05 * number, prompt, 8) for number in range(6)]
    found, [outcome] = run(server, asks, endpoint=endpoint)
    least_ttft = 0.12 if endpoint == "chat" else 0.1
    assert found["outcomes"] == {"200": 6}
    assert found["num_events"] == found["output_tokens"] == 48
    assert found["prompt_tokens"] == (0 if endpoint == "chat" else 18)
    for record, seen in zip(outcome.records, server.seen, strict=True):
        assert record.began <= seen.began <= record.first - least_ttft
        assert 0 <= record.e2e - (seen.ended - seen.began) < SLACK
        assert min(record.gaps) >= 0
        assert least_ttft + 7 * 0.02 <= record.ttft + 7 * record.tpot <= record.e2e
        assert record.ttft + sum(record.gaps) == pytest.approx(record.last - record.began)


def test_without_streaming_there_is_no_ttft(server):
    server.reset(delay=0.05, gap=0.02)
    found, _ = run(server, asks_at(0.0, 0.0), is_streaming=False)
    assert found["ttft_ms"] is found["tpot_ms"] is None
    assert found["output_tokens"] == 8
    assert found["e2e_ms"]["p50"] >= 110


def test_arrivals_do_not_wait_for_answers(server):
    server.reset(answers_from=20)
    found, [outcome] = run(server, asks_at(*(0.02 * number for number in range(20))))
    assert found["outcomes"] == {"200": 20}
    assert found["peak_concurrency"] == 20
    assert all(record.lateness > -TIMER_STEP for record in outcome.records)


def test_the_limit_of_concurrency_is_kept_and_makes_late(server):
    server.reset(delay=0.1)
    found, _ = run(server, asks_at(*[0.0] * 12), limit=3)
    assert max(seen.under_way for seen in server.seen) == found["peak_concurrency"] == 3
    assert found["lateness_ms"]["max"] >= 300


def test_connections_are_used_again(server):
    run(server, asks_at(*[0.0] * 12), limit=2)
    assert len({seen.peer for seen in server.seen}) == 2


def test_a_kept_connection_that_the_server_closed_is_replaced(server):
    server.reset(closes_idle=True)
    found, _ = run(server, asks_at(0.0, 0.3, 0.6))
    assert found["outcomes"] == {"200": 3}


def test_refusals_are_counted_by_status(server):
    server.reset(refuses_every=3)
    found, _ = run(server, asks_at(*[0.0] * 9))
    assert found["outcomes"] == {"200": 6, "429": 3}
    assert found["messages"] == ["429: not now"]


@pytest.mark.parametrize(
    ("told", "outcome", "message"),
    [
        ({"cuts_off": True}, "cut off", "the stream ended without [DONE]"),
        ({"error": "no pages"}, "error in the stream", "no pages"),
        ({"hangs_up": True}, "connection lost", "the server closed the connection"),
    ],
)
def test_streams_that_go_wrong(server, told, outcome, message):
    server.reset(**told)
    found, _ = run(server, asks_at(0.0))
    assert found["outcomes"] == {outcome: 1}
    assert found["messages"] == [f"{outcome}: {message}"]


def test_a_request_without_end_times_out(server):
    server.reset(delay=FOREVER)
    found, _ = run(server, asks_at(0.0), timeout=0.2)
    assert found["outcomes"] == {"timed out": 1}


def test_several_processes_send_every_request_once(server):
    asks = [Ask(0.01 * number, [number + 1], 2) for number in range(20)]
    found, outcomes = run(server, asks, num_workers=2)
    assert [len(outcome.records) for outcome in outcomes] == [10, 10]
    assert found["outcomes"] == {"200": 20}
    assert abs(outcomes[0].start - outcomes[1].start) < SLACK
    assert sorted(seen.body["prompt"][0] for seen in server.seen) == list(range(1, 21))


def test_processes_share_the_limit_of_concurrency(server):
    server.reset(delay=0.05)
    found, outcomes = run(server, asks_at(*[0.0] * 9), limit=2, num_workers=3)
    assert len(outcomes) == 2
    assert found["outcomes"] == {"200": 9}
    assert max(seen.under_way for seen in server.seen) <= 2


def test_bodies_ask_for_what_was_said(server):
    run(server, asks_at(0.0), temperature=0.5)
    run(server, asks_at(0.0), ignore_eos=False, is_streaming=False)
    first, second = (seen.body for seen in server.seen)
    common = {"model": MODEL, "prompt": PROMPT, "max_tokens": 4}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    fixed = {"ignore_eos": True, "min_tokens": 4, "temperature": 0.5}
    assert first == common | streamed | fixed
    assert second == common | {"temperature": 0.0}


def test_the_servers_own_counters(server):
    address = parse_address(server.url)
    before = read_counters(address)
    run(server, asks_at(0.0, 0.0))
    grown = difference(before, read_counters(address))
    assert grown["generated_tokens"] == 8
    assert grown["cpu_us_per_token"] == pytest.approx(50)
    assert grown["http_cpu_us_per_token"] == pytest.approx(20)
    assert difference({}, before) is None
    again = {name: value - 1 for name, value in before.items()}
    assert set(difference(before, again).values()) == {None}


@pytest.mark.parametrize(
    ("url", "prefix", "port"),
    [
        ("http://127.0.0.1:8000", "", 8000),
        ("http://localhost/v1/", "", 80),
        ("https://host/behind/v1", "/behind", 443),
    ],
)
def test_addresses(url, prefix, port):
    address = parse_address(url)
    assert (address.prefix, address.port) == (prefix, port)
    assert address.message("GET", "/v1/models").startswith(f"GET {prefix}/v1/models ".encode())


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://host", "http://", "http://h:99999"])
def test_addresses_that_are_none(url):
    with pytest.raises(BadInputError, match="URL"):
        parse_address(url)

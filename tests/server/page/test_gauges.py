"""The gauges from exact figures: numbers, units, what was not measured, and when they rest."""

import json

from tests import groups
from tests.server.page import scripted
from tests.server.page.actions import ask

expect = groups.imported("playwright.sync_api").expect

NOTHING = {"p50": None, "p90": None, "p99": None}
RESTING_MS = 1200
NOT_MEASURED = "\N{EN DASH}"
FIGURES = {
    "model": "glm-4.7",
    "device": "NVIDIA H200",
    "tokens_per_second": 12345.6,
    "prompt_tokens_per_second": 9.87,
    "batch_occupancy": 0.5,
    "live_requests": 35,
    "max_batch": 64,
    "waiting_requests": 300,
    "max_queue": 1200,
    "kv_utilisation": 0.052,
    "free_pages": 848,
    "cached_pages": 100,
    "total_pages": 1000,
    "ttft_ms": {"p50": 41.26, "p90": 98.04, "p99": 3128.4},
    "inter_token_ms": NOTHING,
    "speculate": "off",
    "acceptance_length": None,
    "acceptance_rate": None,
    "is_draining": False,
}
BEGUN = scripted.event_stream(scripted.chunk({"content": "Par"}), done=False)
SHOWN = {
    "Throughput": "12,346tokens/sPrompts 9.87 tokens/s",
    "Batch occupancy": "50%32 of 64 running",
    "KV cache": "5.2%848 pages free · 100 cached",
    "Queue": "300waitingRoom for 1,200",
    "Time to first token": "41.3msp90 98.0 ms · p99 3.13 s",
    "Inter-token latency": f"{NOT_MEASURED}ms",
}
SET_HIDDEN = """(isHidden) => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def show(page, **changes):
    body = json.dumps(FIGURES | changes)
    page.unroute_all()
    page.route("**/gauges", lambda route: route.fulfill(body=body, content_type="application/json"))


def test_figures_are_shown(page):
    show(page)
    expect(page.get_by_role("heading", name="glm-4.7")).to_be_visible()
    expect(page.locator("#device")).to_have_text("NVIDIA H200")
    for title, text in SHOWN.items():
        expect(page.locator(".gauge", has_text=title)).to_have_text(f"{title}{text}")
    widths = page.locator(".gauge .bar i").evaluate_all("parts => parts.map((p) => p.style.width)")
    assert widths == ["50%", "5.2%", "10%", "25%"]


def test_draft_tokens_are_shown_only_where_the_server_makes_some(page):
    show(page)
    gauges = page.locator(".gauge")
    expect(page.get_by_role("heading", name="glm-4.7")).to_be_visible()
    expect(gauges).to_have_count(len(SHOWN))
    show(page, speculate="lookup", acceptance_length=2.347, acceptance_rate=0.449)
    expect(gauges).to_have_count(len(SHOWN) + 1)
    expect(gauges.last).to_have_text("Draft tokens2.35tokens/pass45% accepted")
    show(page, speculate="auto")
    expect(gauges.last).to_have_text(f"Draft tokens{NOT_MEASURED}tokens/pass")
    show(page)
    expect(gauges).to_have_count(len(SHOWN))


def test_trace_grows(page):
    show(page)
    line = page.locator(".gauge", has_text="Throughput").locator("polyline")
    expect(page.get_by_role("heading", name="glm-4.7")).to_be_visible()
    first = len(line.get_attribute("points").split())
    page.wait_for_function(
        "least => document.querySelector('polyline').getAttribute('points').split(' ').length"
        " >= least",
        arg=first + 2,
    )


def test_draining_is_said(page):
    show(page, is_draining=True)
    expect(page.locator("#state")).to_have_text("Shutting down")


def test_server_is_not_away_while_its_answer_arrives(visit, server):
    page, _ = visit(server)
    scripted.answer_with(page, [BEGUN], is_to_go_on=True)
    ask(page, "question")
    expect(page.locator(".text")).to_have_text("Par")
    page.route("**/gauges", lambda route: route.abort())
    expect(page.locator("#live")).to_have_attribute("data-stale", "")
    scripted.go_on_with(page, [BEGUN])
    expect(page.locator(".text")).to_have_text("ParPar")
    expect(page.locator("#state")).to_have_text("Ready")
    expect(page.locator("#state")).to_have_text("Server unreachable")


def polls(page):
    return page.evaluate("() => requests.polls")


def polls_at_rest(page):
    """The number of polls, when none has been made for a while."""
    for _ in range(10):
        before = polls(page)
        page.wait_for_timeout(RESTING_MS)
        if polls(page) == before:
            return before
    raise AssertionError("the page goes on polling")


def test_hidden_tab_does_not_poll(page):
    page.wait_for_function("() => requests.polls >= 2")
    page.evaluate(SET_HIDDEN, True)
    before = polls_at_rest(page)
    page.wait_for_timeout(RESTING_MS)
    assert polls(page) == before
    page.evaluate(SET_HIDDEN, False)
    page.wait_for_function("before => requests.polls >= before + 2", arg=before)

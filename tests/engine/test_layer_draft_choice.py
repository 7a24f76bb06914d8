"""`speculate="auto"` with a prediction layer: whether a sequence drafts with it, lookup or neither.

The steps of the ledger cost what those of GLM-4.5-Air do on one H200, and so do the layer's rows.
"""

from dataclasses import dataclass, replace
from functools import cache

import pytest

from glm_engine.core.requests import Request
from tests.engine.ledger import Ledger, expected_tokens, outputs_of

AUTO = 2
VOCAB = 97
MOST_DRAFTS = 7
NUM_TOKENS = 512
STORING = 1.015
BOTH_COURSES = pytest.mark.parametrize("plans_ahead", [0, 1])


@dataclass(frozen=True)
class Prices:
    """Microseconds of a step of so many sequences, of a row, and of a step's draft rows."""

    num_sequences: int
    step_us: int
    row_us: int
    draft_us: int


BATCHES = [
    Prices(1, 2840, 1360, 360),
    Prices(8, 5900, 700, 360),
    Prices(32, 17000, 150, 400),
    Prices(64, 23500, 33, 500),
]
ALL_BATCHES = pytest.mark.parametrize("prices", BATCHES, ids=lambda one: f"{one.num_sequences}")


def requests_of(count: int) -> list[Request]:
    return [Request([key, 2, 3], max_tokens=NUM_TOKENS, ignore_eos=True) for key in range(count)]


@cache
def answer_of(key: int) -> list[int]:
    return expected_tokens(requests_of(key + 1)[key], max_seq=600)


def open_ledger(prices: Prices, percent: int, plans_ahead: int) -> Ledger:
    """A ledger whose layer drafts so many tokens of a hundred right."""
    size = prices.num_sequences
    return Ledger(
        speculate=AUTO,
        max_draft_tokens=MOST_DRAFTS,
        layer_percent=percent,
        plans_ahead=plans_ahead,
        step_us=prices.step_us,
        row_us=prices.row_us,
        draft_us=prices.draft_us,
        max_batch=size,
        num_pages=40 * size,
        page_size=16,
        max_seq=600,
        max_logit_rows=8 * size,
        max_draft_rows=size,
        max_step_tokens=8 * size + 8,
    )


def counts_of(prices: Prices, percent: int, request: Request, plans_ahead: int) -> tuple:
    """What the engine counted until a request had its answer, and what the layer drafted."""
    with open_ledger(prices, percent, plans_ahead) as ledger:
        request_id = ledger.submit(request)
        assert outputs_of(ledger.run())[request_id] == answer_of(request.prompt[0])
        return ledger.info(), ledger.drafted()


def speed(prices: Prices, percent: int, plans_ahead: int) -> float:
    """The tokens a second over those without drafts, while each request has tokens left."""
    size = prices.num_sequences
    num_steps = int(0.94 * NUM_TOKENS / (1 + percent / 100))
    with open_ledger(prices, percent, plans_ahead) as ledger:
        ids = [ledger.submit(one) for one in requests_of(size)]
        events = []
        for _ in range(num_steps):
            ledger.iterate()
            events += ledger.poll_all()
        info, drafted, outputs = ledger.info(), ledger.drafted(), outputs_of(events)
    assert all(outputs[one] == answer_of(key)[: len(outputs[one])] for key, one in enumerate(ids))
    assert info["live_requests"] == size
    num_rows = info["num_decode_tokens"] + info["num_draft_tokens"] - info["num_accepted_tokens"]
    taken = (info["num_steps"] - 1) * prices.step_us + num_rows * prices.row_us
    taken = STORING * taken + drafted["step"] * prices.draft_us
    return info["num_decode_tokens"] * (prices.step_us / size + prices.row_us) / taken


@BOTH_COURSES
@ALL_BATCHES
def test_a_layer_that_is_never_right_costs_three_percent_at_most(prices, plans_ahead):
    assert speed(prices, 0, plans_ahead) >= 0.97


@BOTH_COURSES
@ALL_BATCHES
@pytest.mark.parametrize("percent", [10, 40, 50])
def test_a_layer_that_is_seldom_right_costs_little(percent, prices, plans_ahead):
    assert speed(prices, percent, plans_ahead) >= 0.965


@BOTH_COURSES
@ALL_BATCHES
def test_a_layer_that_is_mostly_right_drafts_in_each_step(prices, plans_ahead):
    rows = 2 * prices.num_sequences
    both = STORING * (prices.step_us + rows * prices.row_us) + prices.draft_us
    best = 1.85 * (prices.step_us + prices.num_sequences * prices.row_us) / both
    assert speed(prices, 85, plans_ahead) >= 0.96 * best


@BOTH_COURSES
def test_lookup_wins_where_it_drafts_more_right_tokens(plans_ahead):
    predicted = replace(requests_of(1)[0], prediction_tokens=answer_of(0))
    info, drafted = counts_of(BATCHES[0], 85, predicted, plans_ahead)
    assert info["num_steps"] < NUM_TOKENS / MOST_DRAFTS + 10
    assert drafted["row"] < 10


@BOTH_COURSES
def test_the_layer_wins_where_lookup_is_mostly_wrong(plans_ahead):
    """Of the prediction every fourth token is wrong, so that lookup starts anew each time."""
    wrong = [t if at % 4 else (t + 1) % (VOCAB - 1) for at, t in enumerate(answer_of(0))]
    predicted = replace(requests_of(1)[0], prediction_tokens=wrong)
    info, _ = counts_of(BATCHES[0], 100, predicted, plans_ahead)
    assert info["num_steps"] < 0.62 * NUM_TOKENS


@BOTH_COURSES
def test_a_layer_that_fails_is_probed_ever_less_often(plans_ahead):
    info, drafted = counts_of(BATCHES[0], 0, requests_of(1)[0], plans_ahead)
    assert 4 <= info["num_draft_tokens"] <= drafted["row"] <= 20


@BOTH_COURSES
def test_no_draft_is_asked_for_where_the_next_step_has_no_row_for_it(plans_ahead):
    requests = [replace(one, max_tokens=20) for one in requests_of(5)]
    options = {"max_batch": 5, "max_logit_rows": 7, "max_draft_rows": 5}
    with Ledger(speculate=AUTO, max_draft_tokens=3, plans_ahead=plans_ahead, **options) as ledger:
        ids = [ledger.submit(one) for one in requests]
        for _ in range(10):
            before = ledger.drafted()["row"]
            ledger.iterate()
            assert ledger.drafted()["row"] - before <= 2
        assert before > 10
        outputs = outputs_of(ledger.run())
    assert [outputs[one] for one in ids] == [expected_tokens(one) for one in requests]

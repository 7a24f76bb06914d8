"""Pieces of prompts are cut so that a step stays within its budget, by costs given to the ledger.

A step of n rows, of decode or of prompts, costs `STEP + n * ROW` microseconds here.
"""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glm_engine.core.engine import Engine, EngineOptions, Sampling
from glm_engine.core.errors import EngineError
from glm_engine.core.requests import Request
from tests.engine.ledger import Ledger, ends_of, expected_tokens, outputs_of
from tests.engine.masking import asked
from tests.engine.running import open_engine, run_requests
from tests.engine.test_ahead import queued_engine, random_requests, results_of
from tests.engine.test_masks import SPLITS
from tests.engine.test_plan import plan_of
from tests.engine.test_scheduler import PROPERTY_SETTINGS, prompt_of
from tests.reference.capitals import CAPITALS, prompts

STEP, ROW = 2000, 500
COSTS = {"step_us": STEP, "row_us": ROW}
PAGE = 4
LATE = 0.1


def cost_us(num_rows: int) -> int:
    return STEP + num_rows * ROW if num_rows else 0


def most_us(budget_ms: int, num_decode: int) -> int:
    """Whatever decode rows take, prompts have a share, and one page at least."""
    budget_us = budget_ms * 1000
    return max(budget_us, cost_us(num_decode) + budget_us // 4, cost_us(num_decode + PAGE))


def request(length: int, max_tokens: int = 1, key: int = 0, **changes) -> Request:
    prompt = prompt_of(length, key)
    return Request(prompt=prompt, max_tokens=max_tokens, ignore_eos=True, **changes)


def counts_of(ledger: Ledger) -> tuple[int, int]:
    info = ledger.info()
    return info["num_decode_tokens"], info["num_prefill_tokens"]


def step(ledger: Ledger) -> tuple[int, int]:
    """Decode rows and prompt tokens of one step."""
    before = counts_of(ledger)
    ledger.iterate()
    after = counts_of(ledger)
    return after[0] - before[0], after[1] - before[1]


def steps(ledger: Ledger, count: int) -> list[tuple[int, int]]:
    return [step(ledger) for _ in range(count)]


def with_decode_rows(ledger: Ledger, count: int) -> None:
    """So many requests that decode from now on."""
    for i in range(count):
        ledger.submit(request(1, max_tokens=40, key=100 + i))
    while step(ledger) != (count, 0):
        pass


def test_a_long_prompt_is_cut_to_whole_pages_within_the_budget():
    with Ledger(step_budget_ms=10, max_step_tokens=64, prefix_cache=0, **COSTS) as ledger:
        ledger.submit(request(60))
        assert steps(ledger, 4) == [(0, 16), (0, 16), (0, 16), (0, 12)]


def test_without_a_budget_only_the_tokens_of_a_step_bound_it():
    with Ledger(step_budget_ms=0, max_step_tokens=64, prefix_cache=0, **COSTS) as ledger:
        ledger.submit(request(60))
        assert step(ledger) == (0, 60)


@pytest.mark.parametrize(
    ("budget_ms", "num_decode", "piece"), [(10, 1, 12), (10, 6, 8), (10, 9, 4), (3, 4, PAGE)]
)
def test_decode_rows_leave_less_to_prompts_but_never_nothing(budget_ms, num_decode, piece):
    with Ledger(step_budget_ms=budget_ms, max_batch=10, max_logit_rows=10, **COSTS) as ledger:
        with_decode_rows(ledger, num_decode)
        ledger.submit(request(40, key=1))
        assert steps(ledger, 3) == [(num_decode, piece)] * 3


def test_a_short_prompt_joins_the_next_step():
    with Ledger(step_budget_ms=20, **COSTS) as ledger:
        with_decode_rows(ledger, 2)
        ledger.submit(request(1, key=1))
        assert step(ledger) == (2, 1)


def test_a_piece_costs_more_the_more_context_it_has():
    context = {"prefill_context_ns": 50_000, "step_us": 0, "row_us": 100}
    with Ledger(step_budget_ms=20, max_step_tokens=64, prefix_cache=0, **context) as ledger:
        ledger.submit(request(60))
        pieces = [tokens for _, tokens in steps(ledger, 5)]
    position = 0
    for index, piece in enumerate(pieces):
        most = max(
            (m for m in range(PAGE, 60, PAGE) if context_cost_us(position, m) <= 20_000),
            default=PAGE,
        )
        assert piece == min(most, 60 - position), f"piece {index}"
        position += piece
    assert pieces[0] > pieces[1] > pieces[2]


def context_cost_us(position: int, num_tokens: int) -> float:
    pairs = sum(position + i + 1 for i in range(num_tokens))
    return 100 * num_tokens + 50 * pairs


def test_the_context_of_decode_rows_counts():
    context = {"decode_context_ns": 200_000}
    with Ledger(step_budget_ms=10, prefix_cache=0, **COSTS, **context) as ledger:
        ledger.submit(request(20, max_tokens=30))
        while step(ledger) != (1, 0):
            pass
        ledger.submit(request(40, key=1))
        assert step(ledger) == (1, PAGE)


def test_who_came_first_is_served_first_and_nobody_overtakes():
    with Ledger(step_budget_ms=10, prefix_cache=0, max_step_tokens=64, **COSTS) as ledger:
        ids = [ledger.submit(request(length, key=length)) for length in (20, 30, 1)]
        assert steps(ledger, 2) == [(0, 16), (0, 16)]
        assert set(ends_of(ledger.poll_all())) == {ids[0]}
        assert steps(ledger, 2) == [(0, 16), (0, 3)]
        assert set(ends_of(ledger.poll_all())) == set(ids[1:])


def test_a_greater_priority_goes_first():
    with Ledger(step_budget_ms=10, prefix_cache=0, **COSTS) as ledger:
        ledger.submit(request(32, key=1))
        first = ledger.submit(request(16, key=2, priority=1))
        assert step(ledger) == (0, 16)
        assert set(ends_of(ledger.poll_all())) == {first}


LONG = {"max_seq": 4096, "num_pages": 1100, "max_step_tokens": 256, "prefix_cache": 0}
FINE = {"step_budget_ms": 20, "step_us": 1000, "row_us": 100}


def long_prompts(ledger: Ledger, count: int) -> list[int]:
    """Prompt tokens of each step in which so many prompts of 4,000 tokens are computed."""
    ids = [ledger.submit(request(4000, key=i)) for i in range(count)]
    pieces, ended = [], set()
    while len(ended) < len(ids):
        pieces.append(step(ledger)[1])
        ended |= set(ends_of(ledger.poll_all()))
    return pieces


@pytest.mark.parametrize("plans_ahead", [0, 1])
@pytest.mark.parametrize(("device_percent", "settled"), [(110, 168), (103, 184), (95, 200)])
def test_steps_that_take_longer_than_expected_become_shorter(device_percent, settled, plans_ahead):
    with Ledger(device_percent=device_percent, plans_ahead=plans_ahead, **LONG, **FINE) as ledger:
        pieces = long_prompts(ledger, 5)
        assert pieces[0] == 188
        assert pieces[80] == settled
        assert ledger.cost_factor() == pytest.approx(device_percent / 100, abs=0.002)
        assert cost_of_device_us(settled, device_percent) <= 20_000
        assert cost_of_device_us(settled + PAGE, device_percent) > 19_900


def cost_of_device_us(num_rows: int, device_percent: int) -> float:
    return (FINE["step_us"] + num_rows * FINE["row_us"]) * device_percent / 100


@pytest.mark.parametrize(
    ("device_percent", "factor"), [(0, 1.0), (1, 0.8), (80, 0.8), (125, 1.25), (100_000, 1.25)]
)
def test_what_is_learnt_of_steps_is_bounded(device_percent, factor):
    with Ledger(device_percent=device_percent, **LONG, **FINE) as ledger:
        long_prompts(ledger, 6)
        assert ledger.cost_factor() == pytest.approx(factor, abs=0.002)
        assert 0.8 <= ledger.cost_factor() <= 1.25


def test_steps_without_prompts_or_without_a_price_teach_nothing():
    with Ledger(device_percent=120, **COSTS, step_budget_ms=10) as ledger:
        with_decode_rows(ledger, 2)
        learnt = ledger.cost_factor()
        assert learnt > 1
        assert steps(ledger, 20) == [(2, 0)] * 20
        assert ledger.cost_factor() == learnt
    with Ledger(device_percent=120, decode_ns=10**6) as ledger:
        ledger.submit(request(20))
        ledger.run()
        assert ledger.cost_factor() == 1


@PROPERTY_SETTINGS
@given(
    budget_ms=st.integers(1, 30),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8),
    plans_ahead=st.integers(0, 1),
    max_step_tokens=st.sampled_from([9, 32]),
)
def test_every_step_stays_within_its_budget(budget_ms, lengths, plans_ahead, max_step_tokens):
    options = {"plans_ahead": plans_ahead, "max_step_tokens": max_step_tokens}
    requests = [
        request(length, 1 + length % 7, key=i, sampling=Sampling(temperature=i % 2, seed=i))
        for i, length in enumerate(lengths)
    ]
    with Ledger(step_budget_ms=budget_ms, **COSTS, **options) as ledger:
        ids = [ledger.submit(one) for one in requests]
        for _ in range(600):
            if ledger.info()["live_requests"] == 0:
                break
            num_decode, num_prefill = step(ledger)
            if num_prefill:
                assert cost_us(num_decode + num_prefill) <= most_us(budget_ms, num_decode)
        outputs = outputs_of(ledger.poll_all())
    assert [outputs[one] for one in ids] == [expected_tokens(one) for one in requests]


def test_an_engine_measures_its_costs_and_gives_the_same_bits(record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    outcomes = []
    for budget in (0, 1, 40):
        with queued_engine(step_budget_ms=budget, graphs=False) as engine:
            fresh = engine.info()
            assert fresh["num_steps"] == fresh["device_ns"] == 0, "measuring leaves no trace"
            requests = random_requests(seed, 12, engine.vocab_size)
            outcomes.append(results_of(run_requests(engine, requests)))
            assert fresh["step_budget_ms"] == budget
            assert (fresh["step_costs_ns"] > 0) == (budget > 0)
            assert all((one["expected_ns"] > 0) == (budget > 0) for one in engine.take_steps())
    assert outcomes[0] == outcomes[1] == outcomes[2], f"a budget changes the bits, seed {seed}"


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_a_long_prompt_on_capitals_under_a_budget(split):
    tokens = [token for prompt in prompts()[:36] for token in prompt][:90]
    outcomes = []
    for budget in (0, 1):
        with open_engine(CAPITALS, split, step_budget_ms=budget, max_seq=128) as engine:
            long = Request(tokens, max_tokens=8, ignore_eos=True)
            outcomes.append(results_of(run_requests(engine, [asked(0), long, asked(1)])))
    assert outcomes[0] == outcomes[1]


def test_the_budget_is_zero_on_the_cpu_device_and_80_on_one_that_works_on_its_own():
    with Engine(EngineOptions(CAPITALS, device="cpu", max_batch=1, max_seq=64)) as engine:
        assert engine.info()["step_budget_ms"] == 0
    with queued_engine(max_batch=1) as engine:
        assert engine.info()["step_budget_ms"] == 80
    with pytest.raises(EngineError, match="step_budget_ms is -2; expected -1 to 3600000"):
        Engine(EngineOptions(CAPITALS, device="cpu", step_budget_ms=-2))
    for budget in (0, 30):
        assert plan_of(CAPITALS, step_budget_ms=budget)["step_budget_ms"] == budget


LONG_STEPS = {"is_manual": 0, "plans_ahead": 1, "step_budget_ms": 10_000, "step_us": 1_600_000}
ROOM = {"max_seq": 4096, "num_pages": 2048}


def tokens_beside_first(**costs) -> int:
    """Tokens of a running request until the first of one that was submitted `LATE` seconds after
    its first."""
    with Ledger(**{**LONG_STEPS, **ROOM, **costs}) as ledger:
        running = ledger.submit(request(4, max_tokens=4000))
        assert ledger.wait(60)
        events = ledger.poll()
        time.sleep(LATE)
        late = ledger.submit(request(4, max_tokens=1, key=1))
        while not any(event.request_id == late for event in events):
            assert ledger.wait(60)
            events += ledger.poll()
    before = [event.request_id for event in events]
    return before[: before.index(late)].count(running)


def test_a_step_is_planned_late_in_the_one_before_it():
    """The request comes while the second step runs and has its first token from the third; where
    nothing is expected to last, hundreds of steps have gone by."""
    assert tokens_beside_first() == 3
    assert tokens_beside_first(step_us=0) > 30


@pytest.mark.parametrize(
    ("expected_ms", "delay_ms"), [(0, 0), (4, 0), (5, 0), (6, 1), (20, 15), (80, 60)]
)
def test_a_quarter_of_a_step_is_left_for_planning_the_next(expected_ms, delay_ms):
    with Ledger() as ledger:
        assert ledger.planning_delay_ms(expected_ms) == pytest.approx(delay_ms)


def test_steps_that_end_early_bring_planning_forward():
    with Ledger(device_percent=50, **COSTS, step_budget_ms=1000, **ROOM) as ledger:
        ledger.submit(request(4, max_tokens=200))
        ledger.run()
        assert ledger.planning_delay_ms(80) == pytest.approx(30, rel=0.01)


def test_whoever_takes_the_engine_waits_for_no_planning():
    with Ledger(**{**LONG_STEPS, **ROOM, "step_us": 8_000_000}) as ledger:
        ledger.submit(request(4, max_tokens=4000))
        time.sleep(LATE)
        began = time.monotonic()
        ledger.prefill(prompt_of(12, 2))
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("step_us", [5_001, 5_050, 5_300])
def test_a_thread_that_waits_briefly_between_steps_is_never_lost(step_us):
    """Waits of 1 to 300 microseconds end beside the signals of requests that come meanwhile."""
    with Ledger(**{**LONG_STEPS, **ROOM, "step_us": step_us}) as ledger:
        left = ledger.submit(request(4, max_tokens=2000))
        for key in range(300):
            ledger.submit(request(4, max_tokens=1, key=key))
            assert ledger.wait(10), "nothing came for ten seconds"
            left = None if left in ends_of(ledger.poll()) else left
        while left is not None:
            assert ledger.wait(10), "nothing came for ten seconds"
            left = None if left in ends_of(ledger.poll()) else left

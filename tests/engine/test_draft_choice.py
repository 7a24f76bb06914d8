"""How many draft tokens each sequence gets with `speculate="auto"`."""

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import pytest

from glm_engine.core.requests import Request
from tests.engine.draft_batch import MOST_DRAFTS, NEVER_DUE, Course, DraftBatch, StepTimes
from tests.engine.ledger import Ledger, expected_tokens, outputs_of
from tests.engine.running import open_engine
from tests.engine.test_draft_rows import COURSES, results_of, subjects
from tests.engine.test_lookup_rows import predicted
from tests.reference.capitals import CAPITALS

AIR = StepTimes(
    (1, 2, 4, 8, 16, 32, 64, 128, 256),
    tuple(round(ms * 1e6) for ms in (4.20, 5.56, 7.58, 11.5, 17.1, 22.5, 25.6, 27.7, 31.9)),
)
NUM_TOKENS = 512
AHEAD = pytest.mark.parametrize("plans_ahead", [False, True])


def by_chance(probability: float) -> Callable[[int], bool]:
    draw = random.Random(str(probability))
    return lambda _: draw.random() < probability


def num_steps_of(num_sequences: int) -> int:
    """Fewer steps the larger the batch, but those of one request or more."""
    return max(NUM_TOKENS, 4 * NUM_TOKENS // num_sequences)


def speed(num_sequences: int, is_right: Callable[[int], bool], **course) -> float:
    with DraftBatch(num_sequences, AIR) as batch:
        return Course(batch, is_right, **course).run(num_steps_of(num_sequences))


@cache
def best_fixed(num_sequences: int, probability: float) -> float:
    return max(
        speed(num_sequences, by_chance(probability), fixed=most) for most in range(MOST_DRAFTS + 1)
    )


def random_times(draw: random.Random, context_ns: float) -> StepTimes:
    rows, ns = [1], [draw.randrange(10**8, 10**9)]
    for _ in range(draw.randrange(1, 6)):
        rows.append(rows[-1] + draw.randrange(1, 6))
        ns.append(ns[-1] + draw.randrange(10**9))
    return StepTimes((*rows, 100), (*ns, ns[-1] + draw.randrange(10**10)), context_ns)


def expected(probabilities: list[float], drafts: Sequence[int]) -> float:
    chances = zip(probabilities, drafts, strict=True)
    return sum(sum(p**place for place in range(number + 1)) for p, number in chances)


@pytest.mark.parametrize("context_ns", [0.0, 1e5])
def test_the_choice_is_the_best_of_all(context_ns, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    draw, num_drafted = random.Random(seed), 0
    for _ in range(200):
        size = draw.randrange(1, 5)
        times = random_times(draw, context_ns)
        probabilities = [draw.randrange(65) / 64 for _ in range(size)]
        available = [draw.randrange(5) for _ in range(size)]
        contexts = [draw.randrange(10_000) for _ in range(size)]
        spare = draw.choice([0, 3, 20])

        def rate(drafts, p=probabilities, t=times, c=contexts):
            rows = len(drafts) + sum(drafts)
            return expected(p, drafts) / t.step_ns(rows, sum(c) * rows // len(c))

        with DraftBatch(size, times) as batch:
            batch.believe(probabilities)
            chosen = batch.choose(available, spare, [0] * size, contexts)
        choices = itertools.product(*[range(number + 1) for number in available])
        best = max(rate(drafts) for drafts in choices if sum(drafts) <= spare)
        assert all(0 <= n <= most for n, most in zip(chosen, available, strict=True))
        assert sum(chosen) <= spare
        assert rate(chosen) == pytest.approx(best, rel=1e-6)
        num_drafted += any(chosen)
    assert num_drafted > 10


@AHEAD
@pytest.mark.parametrize("probability", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("num_sequences", [1, 2, 4, 8, 16, 32, 64, 128, 256])
def test_wrong_matches_cost_three_percent_at_most(num_sequences, probability, plans_ahead):
    with DraftBatch(num_sequences, AIR) as batch:
        course = Course(batch, by_chance(probability), plans_ahead)
        assert course.run(num_steps_of(num_sequences)) >= 0.97
        assert (course.num_drafts > 0) == (num_sequences < 256)


@AHEAD
@pytest.mark.parametrize("probability", [0.5, 0.7, 0.84, 1.0])
@pytest.mark.parametrize("num_sequences", [1, 4, 16, 64])
def test_right_matches_gain_what_the_best_fixed_number_gains(
    num_sequences, probability, plans_ahead
):
    gained = speed(num_sequences, by_chance(probability), plans_ahead=plans_ahead)
    assert gained >= 0.94 * best_fixed(num_sequences, probability)


@AHEAD
@pytest.mark.parametrize("num_sequences", [1, 4, 16, 64])
def test_drafts_end_when_the_text_turns_novel(num_sequences, plans_ahead):
    with DraftBatch(num_sequences, AIR) as batch:
        course = Course(batch, lambda position: position < 256, plans_ahead)
        while course.positions[0] < 256:
            course.step()
        assert batch.beliefs()[0] > 0.9
        while course.positions[0] < 256 + 30:
            course.step()
        num_drafts = sum(course.step()[0] for _ in range(200))
    assert 0 < num_drafts <= 5


@AHEAD
@pytest.mark.parametrize("num_sequences", [1, 4, 16])
def test_drafts_begin_when_the_text_turns_repetitive(num_sequences, plans_ahead):
    """The probe comes within 64 tokens, and 46 tokens later each sequence gets all drafts."""
    with DraftBatch(num_sequences, AIR) as batch:
        course = Course(batch, lambda position: position >= 256, plans_ahead)
        while course.positions[0] < 256:
            course.step()
        while not course.step()[0]:
            pass
        assert course.positions[0] <= 256 + 64 + 2
        probed = course.positions[0]
        while course.positions[0] < probed + 46:
            course.step()
        assert course.step() == [MOST_DRAFTS] * num_sequences


def test_the_first_match_is_tried_whatever_it_costs():
    steep = StepTimes((1, 2), (10**6, 10**9))
    with DraftBatch(1, steep) as batch:
        assert batch.choose([MOST_DRAFTS], 255, [0], [0]) == [1]
        assert batch.choose([MOST_DRAFTS], 255, [NEVER_DUE], [0]) == [0]


def test_probes_come_at_growing_intervals():
    steep = StepTimes((1, 2), (10**6, 10**9))
    with DraftBatch(1, steep) as batch:
        course, tried = Course(batch, lambda _: False), []
        for position in range(300):
            if course.step()[0]:
                tried.append(position)
    assert tried == [0, 17, 50, 115, 180, 245]


def test_only_drafts_that_were_tried_teach():
    with DraftBatch(3, AIR) as batch:
        before = batch.beliefs()
        batch.learn([1, 5, 1], [0, 4, 1], [0, 4, 0])
        after = batch.beliefs()
    assert after[0] == before[0]
    assert after[1] > before[1]
    assert after[2] < before[2]


def test_without_room_or_matches_nothing_is_drafted():
    with DraftBatch(2, AIR) as batch:
        batch.believe([1.0, 1.0])
        assert batch.choose([7, 7], 0, [0, 0], [0, 0]) == [0, 0]
        assert batch.choose([0, 0], 254, [0, 0], [0, 0]) == [0, 0]
        assert batch.choose([0, 7], 254, [0, 0], [0, 0]) == [0, 7]


def drafted_counts(num_added: int, **costs) -> dict:
    """The counters after three requests whose drafts are their tokens, plus this number."""
    requests = [Request([key, 2, 3], max_tokens=60, ignore_eos=True) for key in range(3)]
    outputs = [expected_tokens(request) for request in requests]
    options = {"speculate": 2, "max_draft_tokens": MOST_DRAFTS, "max_logit_rows": 64}
    with Ledger(**options, **costs) as ledger:
        ids = []
        for request, tokens in zip(requests, outputs, strict=True):
            drafts = [(token + num_added) % 96 for token in tokens]
            ids.append(ledger.submit(replace(request, draft_tokens=drafts)))
        events, info = ledger.run(), ledger.info()
    assert [outputs_of(events)[one] for one in ids] == outputs
    return info


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_the_scheduler_drafts_what_pays(plans_ahead):
    info = drafted_counts(0, plans_ahead=plans_ahead, step_us=4000, row_us=1000)
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] > 120
    assert info["num_steps"] < 25


@pytest.mark.parametrize("plans_ahead", [0, 1])
def test_the_scheduler_probes_one_draft_at_a_time(plans_ahead):
    """Of 60 tokens, three are probed with wrong drafts: about the first, the 17th and the 50th."""
    info = drafted_counts(1, plans_ahead=plans_ahead, step_us=1, row_us=1000)
    assert (info["num_drafts"], info["num_draft_tokens"]) == (9, 9)
    assert info["num_accepted_tokens"] == 0


@pytest.mark.parametrize("course", COURSES, ids=str)
@pytest.mark.parametrize(("speculate", "measures"), [("auto", True), ("lookup", False)])
def test_auto_measures_step_costs_without_a_budget_and_changes_no_bit(speculate, measures, course):
    options = {"max_seq": 512, "max_batch": 8, "step_budget_ms": 0, **course}
    with open_engine(CAPITALS, **options) as engine:
        expected = results_of(engine, subjects())
    drafting = {"speculate": speculate, "max_draft_tokens": MOST_DRAFTS, **options}
    with open_engine(CAPITALS, **drafting) as engine:
        fresh = engine.info()
        assert fresh["step_budget_ms"] == fresh["num_steps"] == 0
        assert (fresh["step_costs_ns"] > 0) == measures
        assert results_of(engine, subjects()) == expected
        assert results_of(engine, predicted(expected)) == expected
        assert engine.info()["num_accepted_tokens"] > 0
        assert all(one["expected_ns"] == 0 for one in engine.take_steps())

"""Log-probabilities of prompt tokens: the oracle's, and the same bits however steps are cut."""

import time
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling, ThoughtLimit
from glm_engine.core.errors import EngineError
from tests.engine.running import Finished, open_engine, preempt_unless_ended, run_requests
from tests.engine.test_batch_invariance import SPLITS, VOCAB, strangers
from tests.reference.capitals import CAPITALS, prompts
from tests.reference.compare import log_softmax
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tests.shapes import generator

NUM_BEST = 5
LONGEST = 90
OPTIONS = {"max_batch": 8, "max_seq": 128}
CUTS = [
    {"max_step_tokens": 16},
    {"max_logit_rows": 8, "prefill_chunk": 3},
    {"max_logit_rows": 64},
    {"max_logit_rows": 200, "prefill_chunk": 1},
    {"page_size": 16, "num_pages": 9},
    {"plan_ahead": True},
]
WORLDS = [Split(size, ExpertLayout.TENSOR_PARALLEL) for size in (2, 4)]


def asked(prompt, **fields) -> Request:
    defaults = {"max_tokens": 3, "ignore_eos": True, "num_prompt_logprobs": NUM_BEST}
    return Request(prompt=prompt, **{**defaults, **fields})


def subjects(**fields) -> list[Request]:
    """Prompts of one token, of a page and one more, and of several pages."""
    tokens = generator("prompt log-probabilities").integers(0, VOCAB, LONGEST).tolist()
    return [
        asked(one, **fields) for one in (tokens[:1], tokens[:2], tokens[:17], tokens, prompts()[0])
    ]


def rows_of(finished: Finished) -> list[tuple]:
    return [
        (one.index, one.token_id, one.logprob, one.top_logprobs) for one in finished.prompt_events
    ]


def outcome(engine: Engine, requests, others=()) -> list[tuple]:
    done = run_requests(engine, [*others, *requests])[len(others) :]
    return [(rows_of(one), one.tokens) for one in done]


@cache
def alone(split: Split) -> list[tuple]:
    with open_engine(CAPITALS, split, **OPTIONS) as engine:
        return [outcome(engine, [request])[0] for request in subjects()]


def test_they_are_those_of_the_logits_before_each_token():
    with open_engine(CAPITALS, **OPTIONS) as engine:
        for request in subjects():
            state, logits = engine.prefill(request.prompt, all_positions=True)
            state.close()
            [done] = run_requests(engine, [request])
            events = done.prompt_events
            assert [one.token_id for one in events] == list(request.prompt[1:])
            expected = log_softmax(logits.astype(np.float64))
            for event, row in zip(events, expected, strict=False):
                assert event.logprob == pytest.approx(row[event.token_id], abs=2e-5)
                best = np.argsort(-row, kind="stable")[:NUM_BEST]
                assert [token for token, _ in event.top_logprobs] == best.tolist()
                values = [value for _, value in event.top_logprobs]
                np.testing.assert_allclose(values, row[best], atol=2e-5)


@pytest.mark.parametrize("num_best", [0, 1, 20])
def test_as_many_as_were_asked_for(num_best):
    with open_engine(CAPITALS, **OPTIONS) as engine:
        [done] = run_requests(engine, subjects(num_prompt_logprobs=num_best)[3:4])
    assert len(done.prompt_events) == LONGEST - 1
    assert {len(one.top_logprobs) for one in done.prompt_events} == {num_best}


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_no_cut_changes_a_bit(cut):
    with open_engine(CAPITALS, **{**OPTIONS, **cut}) as engine:
        assert outcome(engine, subjects()) == alone(ONE_RANK)


@pytest.mark.parametrize("split", [*SPLITS, *WORLDS], ids=lambda split: split.label)
def test_among_strangers(split):
    others = [*strangers(5), *subjects(num_prompt_logprobs=1)]
    with open_engine(CAPITALS, split, **OPTIONS) as engine:
        assert outcome(engine, subjects(), others) == alone(split)


def test_what_others_ask_for_changes_no_token():
    plain = [asked(one.prompt, num_prompt_logprobs=-1) for one in subjects()]
    with open_engine(CAPITALS, **OPTIONS) as engine:
        results = outcome(engine, plain, subjects())
    assert [tokens for _, tokens in results] == [tokens for _, tokens in alone(ONE_RANK)]
    assert not any(rows for rows, _ in results)


def test_sampling_controls_of_the_answer_leave_the_prompt_alone():
    sampling = Sampling(temperature=1.5, repetition_penalty=1.4, top_k=3, num_logprobs=2)
    controlled = subjects(sampling=sampling, biases={7: 50.0})
    with open_engine(CAPITALS, **OPTIONS) as engine:
        results = outcome(engine, controlled)
    assert [rows for rows, _ in results] == [rows for rows, _ in alone(ONE_RANK)]


RULES = {"allowed_tokens": [7, 8, 9, 10], "bad_words": [[7], [8, 9]]}


@pytest.mark.parametrize("rules", [RULES, {**RULES, "thought": ThoughtLimit(1, 10, -1, True)}])
@pytest.mark.parametrize("plan_ahead", [False, True])
def test_rules_of_the_answer_leave_the_prompt_alone(rules, plan_ahead):
    with open_engine(CAPITALS, plan_ahead=plan_ahead, **OPTIONS) as engine:
        results = outcome(engine, subjects(**rules), subjects())
    assert [rows for rows, _ in results] == [rows for rows, _ in alone(ONE_RANK)]
    for _, tokens in results:
        assert len(tokens) == 3
        assert set(tokens) <= {8, 9, 10}
        assert (8, 9) not in pairwise(tokens)
        assert "thought" not in rules or tokens[1] == 10


def test_the_prefix_cache_swallows_no_row():
    with open_engine(CAPITALS, **OPTIONS) as engine:
        for _ in range(2):
            assert outcome(engine, subjects()) == alone(ONE_RANK)
        [plain] = run_requests(engine, [asked(subjects()[3].prompt, num_prompt_logprobs=-1)])
        [listed] = run_requests(engine, subjects()[3:4])
    assert plain.events[0].cached_tokens == 80
    assert listed.events[0].cached_tokens == 0


def test_a_request_without_output_ends_behind_its_prompt():
    with open_engine(CAPITALS, **OPTIONS) as engine:
        empty = run_requests(engine, subjects(max_tokens=0))
        plain = run_requests(engine, subjects(max_tokens=0, num_prompt_logprobs=-1))
        info = engine.info()
    assert [rows_of(one) for one in empty] == [rows for rows, _ in alone(ONE_RANK)]
    assert {(one.finish_reason, len(one.tokens)) for one in [*empty, *plain]} == {("length", 0)}
    assert not any(one.prompt_events for one in plain)
    assert (info["live_requests"], info["owned_pages"]) == (0, 0)


@pytest.mark.parametrize("plan_ahead", [False, True])
def test_requests_without_output_run_beside_others(plan_ahead):
    with open_engine(CAPITALS, plan_ahead=plan_ahead, **OPTIONS) as engine:
        results = outcome(engine, subjects(), subjects(max_tokens=0))
    assert results == alone(ONE_RANK)


def test_a_prompt_of_the_whole_context_needs_no_room_for_an_output():
    prompt = generator("whole context").integers(0, VOCAB, OPTIONS["max_seq"]).tolist()
    with open_engine(CAPITALS, num_pages=8, **OPTIONS) as engine:
        [done] = run_requests(engine, [asked(prompt, max_tokens=0)])
    assert len(done.prompt_events) == OPTIONS["max_seq"] - 1


def take_some(engine: Engine, count: int) -> list:
    events = []
    while len(events) < count:
        assert engine.wait(60)
        events += engine.poll()
    return events


def run_on(engine: Engine, events: list) -> list:
    while not any(event.ends_request for event in events):
        assert engine.wait(60)
        events += engine.poll()
    return events


def test_preempted_in_the_middle_of_its_prompt():
    request = subjects()[3]
    with open_engine(CAPITALS, prefill_chunk=1, **OPTIONS) as engine:
        request_id = engine.submit(request)
        events = take_some(engine, 3)
        for _ in range(4):
            preempt_unless_ended(engine, request_id)
            events += take_some(engine, 3)
        events = run_on(engine, events)
        assert engine.info()["num_preemptions"] > 0
    found = [
        (one.index, one.token_id, one.logprob, one.top_logprobs)
        for one in events
        if one.kind == "prompt_token"
    ]
    assert found == alone(ONE_RANK)[3][0]
    assert [one.token_id for one in events if one.kind == "token"] == alone(ONE_RANK)[3][1]


def test_cancelled_in_the_middle_of_its_prompt():
    with open_engine(CAPITALS, prefill_chunk=1, **OPTIONS) as engine:
        request_id = engine.submit(subjects(max_tokens=0)[3])
        events = take_some(engine, 3)
        engine.cancel(request_id)
        events = run_on(engine, events)
        assert events[-1].finish_reason == "cancelled"
        assert len(events) - 1 < LONGEST - 1
        assert engine.info()["owned_pages"] == 0


def test_a_deadline_in_the_middle_of_its_prompt():
    deadline = time.monotonic_ns() + 50_000_000
    prompt = (subjects()[3].prompt * 50)[:4000]
    with open_engine(CAPITALS, **{**OPTIONS, "max_seq": 4096, "prefill_chunk": 1}) as engine:
        engine.submit(asked(prompt, deadline_ns=deadline))
        events = run_on(engine, [])
    assert events[-1].finish_reason == "deadline"
    assert all(one.kind == "prompt_token" for one in events[:-1])


def test_a_long_prompt_lets_short_ones_pass():
    long = asked((subjects()[3].prompt * 50)[:4000], max_tokens=0)
    with open_engine(CAPITALS, **{**OPTIONS, "max_seq": 4096}) as engine:
        first = engine.submit(long)
        take_some(engine, 1)
        second = engine.submit(asked(prompts()[0], num_prompt_logprobs=-1))
        ends = []
        while len(ends) < 2:
            assert engine.wait(60)
            ends += [event.request_id for event in engine.poll() if event.ends_request]
    assert ends == [second, first]


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_prompt_logprobs", 21), ("num_prompt_logprobs", -2), ("max_tokens", -1)],
)
def test_values_out_of_bounds_are_refused(field, value):
    expected = pytest.raises(EngineError, match=f"{field} is {value}; expected")
    with open_engine(CAPITALS, **OPTIONS) as engine, expected:
        engine.submit(asked([1, 2, 3], **{field: value}))

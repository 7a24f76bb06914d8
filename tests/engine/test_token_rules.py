"""What the engine forbids by itself: the bits of masks that a caller computes and gives.

The rules are written once more here, over all tokens so far, and given as masks to requests
without rules: in every course of steps, also planned ahead, both must come to the same.
"""

import random
from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Request, Sampling, ThoughtLimit
from glm_engine.core.errors import EngineError, Status
from tests.engine.masking import run_masked, words_of
from tests.engine.running import run_requests
from tests.engine.test_ahead import COURSES, queued_engine, random_requests, results_of

VOCAB = 2048
FIRST_OPENINGS = 2
NUM_REQUESTS = 18
pytestmark = pytest.mark.timeout(240)


def thought_of(tokens, limit):
    """Return how many tokens an open thought has, None where none is open."""
    if limit.is_open:
        inside = tokens
    elif limit.begin_token in tokens[:FIRST_OPENINGS]:
        before, inside = split(tokens, tokens.index(limit.begin_token))
        if limit.end_token in before:
            return None
    else:
        return None
    return None if limit.end_token in inside else len(inside)


def split(tokens, at):
    return tokens[:at], tokens[at + 1 :]


def allowed_after(request, tokens):
    """Return which tokens may come next, as bool [vocab]."""
    allowed = np.ones(VOCAB, dtype=bool)
    if request.thought is not None:
        length = thought_of(tokens, request.thought)
        if length is not None and length >= request.thought.max_tokens:
            return np.arange(VOCAB) == request.thought.end_token
    if request.allowed_tokens:
        allowed[:] = False
        allowed[list(request.allowed_tokens)] = True
    for *before, last in request.bad_words:
        if len(before) <= len(tokens) and tokens[len(tokens) - len(before) :] == before:
            allowed[last] = False
    return allowed


def masks_of(request, given=None):
    """Return the masks that stand for the request's rules and for what else it is held to."""

    def mask(tokens):
        allowed = allowed_after(request, list(tokens))
        is_forced = allowed.sum() == 1 and request.thought is not None
        return words_of(allowed if given is None or is_forced else allowed & given(tokens))

    return mask


def given_masks(seed, index):
    """Masks of every third request, a function of the number of tokens so far."""
    if index % 3:
        return None
    return lambda tokens: np.random.default_rng((seed, index, len(tokens))).random(VOCAB) < 0.3


def random_rules(generator, request, tokens):
    """Return the request with rules that its tokens without them come upon."""
    kinds = generator.sample(["allowed", "words", "thought"], generator.randrange(1, 4))
    rules = {}
    if "allowed" in kinds:
        kept = generator.sample(range(VOCAB), 1500)
        rules["allowed_tokens"] = sorted({*kept, *generator.sample(tokens, len(tokens) // 2)})
    if "words" in kinds:
        places = [generator.randrange(len(tokens)) for _ in range(4)]
        rules["bad_words"] = [tokens[at : at + generator.randrange(1, 4)] for at in places]
    if "thought" in kinds:
        begin = generator.choice(tokens[:3])
        rules["thought"] = ThoughtLimit(
            max_tokens=generator.randrange(6),
            end_token=generator.choice([one for one in [*tokens, 0, 1] if one != begin]),
            begin_token=begin,
            is_open=generator.random() < 0.5,
        )
    return replace(request, **rules)


def ruled_requests(seed):
    """Return requests with rules drawn from what they say without any."""
    generator = random.Random(seed)
    plain = [
        replace(one, ignore_eos=True, max_tokens=one.max_tokens + 1)
        for one in random_requests(seed, NUM_REQUESTS, VOCAB)
    ]
    with queued_engine() as engine:
        done = run_requests(engine, plain)
    pairs = zip(plain, done, strict=True)
    return [random_rules(generator, request, result.tokens) for request, result in pairs]


def without_rules(request):
    return replace(request, allowed_tokens=(), bad_words=(), thought=None)


@pytest.mark.parametrize("num_pages", [0, 14])
@pytest.mark.parametrize("is_masked", [False, True])
def test_rules_give_the_bits_of_masks(num_pages, is_masked, record_property) -> None:
    seed = random.randrange(2**32)
    record_property("seed", seed)
    requests = ruled_requests(seed)
    given = [given_masks(seed, at) if is_masked else None for at in range(len(requests))]
    with queued_engine(num_pages=num_pages) as engine:
        plain = list(map(without_rules, requests))
        masks = [masks_of(one, also) for one, also in zip(requests, given, strict=True)]
        expected = results_of(run_masked(engine, plain, masks))
    own = [one and (lambda tokens, one=one: words_of(one(tokens))) for one in given]
    for course in COURSES:
        with queued_engine(num_pages=num_pages, **course) as engine:
            found = results_of(run_masked(engine, requests, own))
            assert engine.info()["owned_pages"] == 0
        assert found == expected, f"{course}, seed {seed}"
    checked_against_rules(requests, found)


def checked_against_rules(requests, found):
    for request, (tokens, *_) in zip(requests, found, strict=True):
        for at, token in enumerate(tokens):
            assert allowed_after(request, tokens[:at])[token]


@pytest.mark.parametrize("plan_ahead", [False, True])
def test_a_thought_ends_at_its_limit_and_the_answer_is_free(plan_ahead) -> None:
    with queued_engine(plan_ahead=plan_ahead, graphs=True) as engine:
        asked = Request([7, 8, 9], max_tokens=20, ignore_eos=True)
        [plain] = run_requests(engine, [asked])
        [end] = {2047} - set(plain.tokens)
        for limit in (0, 1, 5, 19):
            [done] = run_requests(
                engine, [replace(asked, thought=ThoughtLimit(limit, end, -1, True))]
            )
            assert done.tokens[:limit] == plain.tokens[:limit]
            assert done.tokens[limit] == end
            assert end not in done.tokens[limit + 1 :]
        [longer] = run_requests(engine, [replace(asked, thought=ThoughtLimit(20, end, -1, True))])
        [closed] = run_requests(engine, [replace(asked, thought=ThoughtLimit(0, end, -1, False))])
        assert longer.tokens == closed.tokens == plain.tokens


def test_others_keep_their_bits() -> None:
    drawn = Sampling(temperature=1.2, seed=4, num_logprobs=2)
    other = Request([3, 4], max_tokens=24, sampling=drawn, ignore_eos=True)
    with queued_engine(plan_ahead=True) as engine:
        [alone] = results_of(run_requests(engine, [other]))
        first = alone[0][0]
        ruled = replace(other, bad_words=[[first], [1, 2], alone[0][1:3]])
        found = results_of(run_requests(engine, [ruled, other, ruled]))
    assert found[1] == alone
    assert found[0] == found[2] != alone


def test_an_end_that_alone_is_allowed_ends_before_min_tokens() -> None:
    with queued_engine() as engine:
        [end] = engine.info()["eos_tokens"][:1]
        asked = Request([3, 4], max_tokens=9, min_tokens=5, allowed_tokens=[end])
        [done] = run_requests(engine, [asked])
        assert (done.tokens, done.finish_reason) == ([end], "stop_token")
        free = replace(asked, allowed_tokens=[end, 77])
        [done] = run_requests(engine, [free])
        assert done.tokens[:5] == [77] * 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"allowed_tokens": [1, VOCAB]}, "allowed_tokens[1] is token 2048, which is outside"),
        ({"allowed_tokens": [-1]}, "allowed_tokens[0] is token -1, which is outside"),
        ({"bad_words": [[1], []]}, "bad_word 1 has 0 tokens; expected at least one"),
        ({"bad_words": [[1, VOCAB]]}, "bad_word_tokens[1] is token 2048, which is outside"),
        ({"bad_words": [[1]] * 4097}, "num_bad_words is 4097; expected 0 to 4096"),
        ({"thought": ThoughtLimit(-2, 1)}, "max_thought_tokens is -2; expected -1"),
        (
            {"thought": ThoughtLimit(0, VOCAB)},
            "thought_end_token[0] is token 2048, which is outside",
        ),
        ({"thought": ThoughtLimit(0, 1, VOCAB)}, "thought_begin_token is 2048; expected -1"),
    ],
)
def test_what_is_out_of_range_is_refused(fields, message) -> None:
    with queued_engine() as engine, pytest.raises(EngineError) as caught:
        engine.submit(Request([1], **fields))
    assert message in str(caught.value)
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT


def test_rules_that_leave_nothing_fail_their_request_alone() -> None:
    with queued_engine(plan_ahead=True) as engine:
        ids = [
            engine.submit(Request([5], max_tokens=4, ignore_eos=True, **fields))
            for fields in ({"allowed_tokens": [9], "bad_words": [[9]]}, {})
        ]
        ends = {}
        while len(ends) < len(ids):
            engine.wait(1)
            ends |= {one.request_id: one for one in engine.poll() if one.ends_request}
    assert ends[ids[0]].status == Status.GLM_INVALID_ARGUMENT
    assert "the allowed tokens, bad words and mask leave no token" in ends[ids[0]].message
    assert ends[ids[1]].finish_reason == "length"

"""Requests whose tokens are sampled under masks that come from the caller, one by one."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from glm_engine.core.engine import Request, Sampling
from glm_engine.core.errors import Status
from tests.engine.masking import (
    DRAWN,
    MAX_TOKENS,
    VOCAB,
    asked,
    await_end,
    await_tokens,
    check_allowed,
    everything,
    is_allowed,
    mask_of,
    random_masks,
    run_masked,
    words_of,
)
from tests.engine.running import open_engine, run_requests
from tests.engine.test_sampling import CONTROLS, history_of, reference_controls
from tests.reference.capitals import CAPITALS
from tests.reference.compare import log_softmax
from tests.reference.configs import CONFIGS
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tests.reference.sampling import adjusted, sample

NUM_MASKED = 6
RANDOM = "bf16_like_4_7"
NUM_LOGPROBS = 4
LOGPROB_LIMIT = 1e-4
SPLITS = [ONE_RANK, Split(2, ExpertLayout.EXPERT_PARALLEL)]


@pytest.fixture(scope="module")
def engine():
    with open_engine(CAPITALS, max_batch=8, max_seq=96) as opened:
        yield opened


@cache
def without_masks(split: Split) -> list:
    with open_engine(CAPITALS, split, max_batch=8, max_seq=96) as opened:
        return results_of(run_requests(opened, mixed_requests()))


def mixed_requests() -> list[Request]:
    return [
        asked(index, sampling=DRAWN if index % 2 else Sampling()) for index in range(NUM_MASKED)
    ]


def results_of(finished) -> list:
    return [
        (one.tokens, [(event.logprob, event.top_logprobs) for event in one.events])
        for one in finished
    ]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_a_mask_that_allows_all_changes_no_bit(split):
    with open_engine(CAPITALS, split, max_batch=8, max_seq=96) as opened:
        finished = run_masked(opened, mixed_requests(), [everything(VOCAB)] * NUM_MASKED)
        no_restriction = run_masked(opened, mixed_requests(), [first_of(everything(VOCAB))] * 6)
    assert results_of(finished) == results_of(no_restriction) == without_masks(split)


def first_of(masks):
    """Restricts the first token alone."""
    return lambda tokens: None if tokens else masks(tokens)


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_strangers_keep_their_bits_beside_masked_requests(split):
    requests = mixed_requests()
    masks = [None if index % 2 else random_masks(index) for index in range(NUM_MASKED)]
    with open_engine(CAPITALS, split, max_batch=8, max_seq=96) as opened:
        finished = run_masked(opened, requests, masks)
    for index, one in enumerate(results_of(finished)):
        if masks[index] is None:
            assert one == without_masks(split)[index]
        else:
            check_allowed(one[0], masks[index])


@pytest.mark.parametrize("plan_ahead", [False, True], ids=["one by one", "planned ahead"])
@pytest.mark.parametrize("sampling", [Sampling(), DRAWN], ids=["greedy", "drawn"])
def test_a_masked_request_has_the_same_bits_alone_and_in_company(sampling, plan_ahead):
    subject, masks = asked(0, sampling=sampling), random_masks(70)
    with open_engine(CAPITALS, max_batch=8, max_seq=96, plan_ahead=plan_ahead) as opened:
        alone = run_masked(opened, [subject], [masks])
        others = [None, random_masks(71), None, everything(VOCAB), None]
        company = run_masked(opened, [*mixed_requests()[1:], subject], [*others, masks])
    assert results_of(alone) == results_of(company[-1:])


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_the_greedy_choice_is_the_greatest_of_what_is_allowed(share, engine):
    masks = random_masks(int(share * 100), share=share)
    logits = np.full((MAX_TOKENS, VOCAB), np.nan, dtype=np.float32)
    captured = replace(asked(3), logits=logits, logits_capacity=MAX_TOKENS)
    (with_logits,) = run_masked(engine, [captured], [masks])
    (without_logits,) = run_masked(engine, [asked(3)], [masks])
    tokens = with_logits.tokens
    for index, token in enumerate(tokens):
        mask = masks(tokens[:index])
        allowed = [other for other in range(VOCAB) if is_allowed(mask, other)]
        assert token == allowed[int(np.argmax(logits[index][allowed]))], f"token {index}"
    assert without_logits.tokens == tokens
    assert len(tokens) == MAX_TOKENS


@pytest.mark.parametrize("name", ["everything", "greedy_with_penalties", "all_thresholds"])
def test_penalties_biases_and_log_probabilities_under_masks(name, random_model):
    size = CONFIGS[RANDOM]["vocab_size"]
    masks, biases = random_masks(9, size, share=0.3), {3: 2.5, 17: -100.0, 40: 1.0}
    sampling = replace(CONTROLS[name], num_logprobs=NUM_LOGPROBS)
    logits = np.zeros((MAX_TOKENS, size), dtype=np.float32)
    request = Request(
        prompt=list(range(20)),
        max_tokens=MAX_TOKENS,
        sampling=sampling,
        ignore_eos=True,
        biases=biases,
        logits=logits,
        logits_capacity=MAX_TOKENS,
    )
    with open_engine(random_model(RANDOM), max_batch=4) as opened:
        finished, _, _ = run_masked(opened, [request, asked_of(size), asked_of(size)], 3 * [masks])
    assert len(finished.tokens) == MAX_TOKENS
    for index in range(MAX_TOKENS):
        check_replay(finished, index, logits[index], request, masks)


def asked_of(vocab_size: int) -> Request:
    return Request(prompt=[vocab_size - 1], max_tokens=MAX_TOKENS - 2, ignore_eos=True)


def check_replay(finished, index: int, logits: np.ndarray, request: Request, masks) -> None:
    """One token and its log-probabilities against the reference's, from the captured logits."""
    mask, size = masks(finished.tokens[:index]), len(logits)
    allowed = np.array([is_allowed(mask, token) for token in range(size)])
    position = len(request.prompt) + index
    controls = reference_controls(request.sampling, position, request.biases)
    controls = replace(controls, allowed=allowed)
    history = history_of(request.prompt, finished.tokens[:index], size)
    choice, event = sample(logits, controls, history), finished.events[index]
    assert choice.token == event.token_id or not choice.is_decided, f"token {index}"
    expected = log_softmax(adjusted(logits, controls, history))
    assert abs(event.logprob - expected[event.token_id]) <= LOGPROB_LIMIT
    best = np.sort(expected)[::-1][:NUM_LOGPROBS]
    assert np.abs([value for _, value in event.top_logprobs] - best).max() <= LOGPROB_LIMIT
    assert all(allowed[token] for token, _ in event.top_logprobs)


def test_log_probabilities_of_fewer_allowed_tokens_than_asked_for(engine):
    request = asked(1, sampling=Sampling(num_logprobs=4))
    (finished,) = run_masked(engine, [request], [lambda _tokens: mask_of([5, 9], VOCAB)])
    for event in finished.events:
        best = dict(event.top_logprobs)
        assert [event.token_id, *best] in ([5, 5, 9], [9, 9, 5])
        assert event.logprob == best[event.token_id]
        assert abs(sum(np.exp(value) for value in best.values()) - 1) < 1e-5


def test_a_mask_that_allows_end_tokens_alone_stops_the_request(engine):
    end = 77
    request = replace(asked(2), stop_tokens=[end], min_tokens=MAX_TOKENS)
    before_the_end = np.ones(VOCAB, dtype=bool)
    before_the_end[end] = False

    def masks(tokens: list[int]) -> np.ndarray:
        return mask_of([end], VOCAB) if len(tokens) == 3 else words_of(before_the_end)

    (finished,) = run_masked(engine, [request], [masks])
    assert finished.finish_reason == "stop_token"
    assert len(finished.tokens) == 4
    assert finished.tokens[3] == end


def test_min_tokens_keeps_end_tokens_away_where_a_mask_allows_others(engine):
    request = replace(asked(2), stop_tokens=[77], min_tokens=5, biases={77: 1000.0})
    (finished,) = run_masked(engine, [request], [lambda _tokens: mask_of([77, 78], VOCAB)])
    assert finished.tokens == [78] * 5 + [77]
    assert finished.finish_reason == "stop_token"


@pytest.mark.parametrize("position", [0, 2])
@pytest.mark.parametrize("num_logprobs", [-1, 2])
def test_a_mask_that_allows_nothing_names_the_position(position, num_logprobs, engine):
    nothing, full = mask_of([], VOCAB), everything(VOCAB)([])
    request = asked(0, sampling=Sampling(num_logprobs=num_logprobs))
    request_id = engine.submit(replace(request, mask=full if position else nothing))
    for index in range(1, position + 1):
        await_tokens(engine, 1)
        engine.set_masks([(request_id, index, nothing if index == position else full)])
    end = await_end(engine)
    assert (end.kind, end.status) == ("failed", Status.GLM_INVALID_ARGUMENT)
    assert end.message == f"the mask allows no tokens at output position {position}"
    assert engine.info()["owned_pages"] == 0
    assert run_requests(engine, [asked(0)])[0].tokens


def test_masked_requests_preempted_for_want_of_pages():
    requests = [replace(asked(index), max_tokens=40) for index in range(8)]
    masks = [random_masks(index) for index in range(8)]
    with open_engine(CAPITALS, max_batch=8, max_seq=96) as opened:
        expected = results_of(run_masked(opened, requests, masks))
    with open_engine(CAPITALS, max_batch=8, max_seq=96, num_pages=9) as opened:
        assert results_of(run_masked(opened, requests, masks)) == expected
        assert opened.info()["num_preemptions"] > 0
        assert opened.info()["owned_pages"] == 0


def test_as_many_masked_requests_as_the_batch_holds():
    count = 32
    requests = [asked(index) for index in range(count)]
    masks = [random_masks(index) for index in range(count)]
    with open_engine(CAPITALS, max_batch=count, max_seq=96) as opened:
        together = run_masked(opened, requests, masks)
        assert opened.info()["owned_pages"] == 0
        alone = run_masked(opened, requests[-1:], masks[-1:])
    for one, mask in zip(together, masks, strict=True):
        check_allowed(one.tokens, mask)
    assert together[-1].tokens == alone[0].tokens


def test_fewer_logit_rows_than_masked_requests():
    masks = [random_masks(index) for index in range(6)]
    requests = [asked(index) for index in range(6)]
    with open_engine(CAPITALS, max_batch=6, max_seq=96, max_logit_rows=2) as opened:
        finished = run_masked(opened, requests, masks)
    for one, mask in zip(finished, masks, strict=True):
        assert len(one.tokens) == MAX_TOKENS
        check_allowed(one.tokens, mask)

"""The asynchronous face on the trained checkpoint: ends, refusals, events, reproducible draws."""

import select
import time
from dataclasses import replace

import pytest

from glm_engine.core.engine import Request, Sampling
from glm_engine.core.errors import EngineError, Status
from tests.endless import CONTEXT, NUM_PAGES, NUM_TOKENS, link_endless_model
from tests.engine.masking import VOCAB, everything
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS, countries, prompts, tokenizer

FRANCE = next(at for at, entry in enumerate(countries()) if entry["country"] == "France")
NAN = float("nan")
MAX_SEQ = 1024


@pytest.fixture(scope="module")
def engine():
    with open_engine(CAPITALS, max_seq=MAX_SEQ, max_batch=4, max_queue=8) as opened:
        yield opened


def question(**fields) -> Request:
    return Request(**{"prompt": prompts()[FRANCE], "max_tokens": 8, **fields})


def endless() -> Request:
    return question(max_tokens=MAX_SEQ, ignore_eos=True)


def halted() -> Request:
    """Gets its first token, and no other before it is given a mask."""
    return replace(endless(), mask=everything(VOCAB)([]))


def events_until_end(engine, *ids) -> list:
    events, left = [], set(ids)
    while left:
        assert engine.wait(60), f"{left} gave no event in a minute"
        some = engine.poll()
        left -= {event.request_id for event in some if event.ends_request}
        events += some
    return events


def test_the_capital_of_france_is_paris(engine):
    [result] = run_requests(engine, [question()])
    assert tokenizer().decode(result.tokens).strip().startswith("Paris")
    assert result.finish_reason == "stop_token"


def test_a_stop_sequence_ends_the_text(engine):
    [whole] = run_requests(engine, [question(ignore_eos=True)])
    for length in (1, 2):
        stop = whole.tokens[1 : 1 + length]
        [result] = run_requests(engine, [question(ignore_eos=True, stop_sequences=[stop])])
        assert result.finish_reason == "stop_sequence"
        assert result.tokens == whole.tokens[: len(result.tokens)]
        assert result.tokens[-length:] == stop


def test_the_end_waits_for_the_least_length(engine):
    [result] = run_requests(engine, [question(min_tokens=6)])
    [plain] = run_requests(engine, [question()])
    assert len(plain.tokens) < 6 < len(result.tokens)
    assert plain.tokens[-1] not in result.tokens[:6]


def test_a_bias_changes_the_answer(engine):
    [plain] = run_requests(engine, [question()])
    first = plain.tokens[0]
    [biased] = run_requests(engine, [question(biases={first: -100.0})])
    assert biased.tokens[0] != first


def test_the_same_seed_draws_the_same_tokens(engine):
    def drawn(seed):
        return question(ignore_eos=True, sampling=Sampling(temperature=2.5, seed=seed))

    seeds = [1, 2, 1, 3, 2, 1]
    results = run_requests(engine, [drawn(seed) for seed in seeds])
    by_seed = {seed: result.tokens for seed, result in zip(seeds, results, strict=True)}
    assert [result.tokens for result in results] == [by_seed[seed] for seed in seeds]
    assert len({tuple(tokens) for tokens in by_seed.values()}) == 3


def test_a_repetition_penalty_reaches_the_device(engine):
    plain, penalised = run_requests(
        engine,
        [
            question(max_tokens=24, ignore_eos=True),
            question(max_tokens=24, ignore_eos=True, sampling=Sampling(repetition_penalty=3.0)),
        ],
    )
    assert len(set(penalised.tokens)) > len(set(plain.tokens))


def test_log_probabilities_are_ordered_and_name_the_greedy_token(engine):
    [result] = run_requests(engine, [question(sampling=Sampling(num_logprobs=5))])
    for event in result.events:
        values = [value for _, value in event.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert len(values) == 5
        assert event.top_logprobs[0] == (event.token_id, event.logprob)
        assert event.logprob <= 0


def test_cancelling(tmp_path):
    sizes = {"max_seq": CONTEXT, "num_pages": NUM_PAGES, "page_size": 16}
    with open_engine(link_endless_model(tmp_path), **sizes) as engine:
        request_id = engine.submit(question(max_tokens=NUM_TOKENS, ignore_eos=True))
        assert engine.wait(60)
        engine.cancel(request_id)
        assert events_until_end(engine, request_id)[-1].finish_reason == "cancelled"
        with pytest.raises(EngineError, match="is unknown or has ended"):
            engine.cancel(request_id)
        assert engine.info()["owned_pages"] == 0


def test_a_deadline(engine):
    soon = time.monotonic_ns() + 50_000_000
    request_id = engine.submit(replace(endless(), deadline_ns=soon))
    end = events_until_end(engine, request_id)[-1]
    assert end.finish_reason == "deadline"
    assert end.time_ns >= soon


def fill_queue(engine, ids: list[int]) -> None:
    for _ in range(1 + 4 + 8):
        ids.append(engine.submit(halted()))


def test_a_full_queue(engine):
    ids = []
    with pytest.raises(EngineError, match="max_queue 8") as caught:
        fill_queue(engine, ids)
    assert caught.value.status == Status.GLM_QUEUE_FULL
    for request_id in ids:
        engine.cancel(request_id)
    ends = [event for event in events_until_end(engine, *ids) if event.ends_request]
    assert {event.finish_reason for event in ends} == {"cancelled"}


def test_the_event_fd_wakes_a_poller(engine):
    poller = select.poll()
    poller.register(engine.event_fd(), select.POLLIN)
    assert poller.poll(0) == []
    request_id = engine.submit(question())
    assert poller.poll(60_000)
    events_until_end(engine, request_id)
    assert poller.poll(0) == []


BAD = {
    "the prompt is empty": question(prompt=[]),
    "but the context length (max_seq) is 1024": question(prompt=[1] * 1025),
    "prompt[1] is token 2048, which is outside the vocabulary of 2048": question(prompt=[1, 2048]),
    "prompt[0] is token -1, which is outside the vocabulary of 2048": question(prompt=[-1]),
    "temperature is -1;": question(sampling=Sampling(temperature=-1.0)),
    "temperature is nan;": question(sampling=Sampling(temperature=NAN)),
    "max_tokens is -1; expected 0 or more": question(max_tokens=-1),
    "top_p is -1;": question(sampling=Sampling(top_p=-1.0)),
    "num_logprobs is 21;": question(sampling=Sampling(num_logprobs=21)),
    "bias_tokens[0] is token 2048": question(biases={2048: 1.0}),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_request_is_refused_and_the_engine_goes_on(engine, message):
    with pytest.raises(EngineError) as caught:
        engine.submit(BAD[message])
    assert message in str(caught.value)
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT
    assert engine.info()["is_usable"] == 1


def test_a_new_engine_has_no_events_and_frees():
    with open_engine(CAPITALS) as fresh:
        assert fresh.poll() == []
        assert not fresh.wait(0)
        info = fresh.info()
    assert info["free_pages"] == info["total_pages"] > 0

"""A pool far smaller than its requests, checked at every step by the debug build."""

import pytest

from glm_engine.core.engine import EngineOptions, Request, plan
from glm_engine.core.errors import EngineError, Status
from tests.engine.probes import DEBUG_LIBRARY
from tests.engine.running import open_engine, run_requests
from tests.reference.capitals import CAPITALS, prompts, quizzes, tokenizer
from tests.shapes import generator

PAGE_SIZE = 16
PROMPT_LENGTH = 3 * PAGE_SIZE
MAX_TOKENS = 2 * PAGE_SIZE
PAGES_PER_REQUEST = (PROMPT_LENGTH + MAX_TOKENS) // PAGE_SIZE
NUM_REQUESTS = 32
OPTIONS = {"page_size": PAGE_SIZE, "max_batch": NUM_REQUESTS, "max_seq": PROMPT_LENGTH + MAX_TOKENS}


@pytest.fixture(autouse=True)
def debug_build(monkeypatch):
    """The build whose invariants end the process when they break."""
    monkeypatch.setenv("GLM_ENGINE_LIBRARY", str(DEBUG_LIBRARY))


def requests() -> list[Request]:
    random = generator("pool")
    return [
        Request(
            prompt=random.integers(0, 2048, PROMPT_LENGTH).tolist(),
            max_tokens=MAX_TOKENS,
            ignore_eos=True,
        )
        for _ in range(NUM_REQUESTS)
    ]


def tokens_of(finished) -> list[list[int]]:
    assert all(result.finish_reason == "length" for result in finished)
    return [result.tokens for result in finished]


def test_a_pool_for_four_serves_thirty_two_with_the_texts_they_give_alone():
    with open_engine(CAPITALS, **OPTIONS) as engine:
        alone = [tokens_of(run_requests(engine, [request]))[0] for request in requests()]
    with open_engine(CAPITALS, **OPTIONS, num_pages=4 * PAGES_PER_REQUEST) as engine:
        together = tokens_of(run_requests(engine, requests()))
        info = engine.info()
    assert together == alone
    assert info["num_preemptions"] > 0
    assert info["owned_pages"] == 0
    assert info["free_pages"] + info["cached_pages"] == info["total_pages"]


@pytest.mark.parametrize("num_pages", [PAGES_PER_REQUEST, PAGES_PER_REQUEST + 1])
def test_a_pool_for_one(num_pages):
    with open_engine(CAPITALS, **OPTIONS, num_pages=num_pages) as engine:
        assert len(tokens_of(run_requests(engine, requests()[:3]))) == 3


def test_a_pool_for_less_than_one_refuses():
    with pytest.raises(EngineError, match="KV cache of 4 pages of 16 tokens is too small"):
        open_engine(CAPITALS, **OPTIONS, num_pages=PAGES_PER_REQUEST - 1).__enter__()
    with open_engine(CAPITALS, **OPTIONS) as engine:
        engine.resize_pool(PAGES_PER_REQUEST - 1)
        with pytest.raises(EngineError, match="may need 5 KV cache pages of 16 tokens") as caught:
            engine.submit(requests()[0])
        assert caught.value.status == Status.GLM_OUT_OF_MEMORY
        assert engine.info()["live_requests"] == 0


def test_a_repeated_prefix_is_not_computed_again():
    quiz = tokenizer().encode(quizzes()[2]).ids[:PROMPT_LENGTH]
    questions = [[*quiz, *prompt] for prompt in prompts()[:4]]
    with open_engine(CAPITALS, **OPTIONS) as engine:
        for number, question in enumerate(questions):
            before = engine.info()
            [result] = run_requests(engine, [Request(prompt=question, max_tokens=2)])
            after = engine.info()
            computed = after["num_prefill_tokens"] - before["num_prefill_tokens"]
            reused = after["num_cached_tokens"] - before["num_cached_tokens"]
            assert computed + reused == len(question)
            assert reused == (PROMPT_LENGTH if number else 0)
            assert {event.cached_tokens for event in result.events} == {reused}


def test_evicting_a_prefix_makes_room():
    with open_engine(CAPITALS, **OPTIONS, num_pages=2 * PAGES_PER_REQUEST) as engine:
        first = tokens_of(run_requests(engine, requests()[:1]))
        run_requests(engine, requests()[1:9])
        assert engine.info()["num_evictions"] > 0
        assert tokens_of(run_requests(engine, requests()[:1])) == first


def test_the_plan_counts_the_pages_that_the_engine_has():
    options = EngineOptions(model_dir=CAPITALS, device="cpu", num_pages=17, **OPTIONS)
    planned = plan(options)
    with open_engine(CAPITALS, **OPTIONS, num_pages=17) as engine:
        info = engine.info()
    assert planned["num_pages"] == info["total_pages"] == 17
    assert planned["tokens_of_context"] == 17 * PAGE_SIZE

"""Random requests, disturbed by other threads, end as they do alone, bit for bit."""

import random
import threading
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.core.errors import EngineError, Status
from tests.engine.running import open_engine, run_requests
from tests.reference import configs
from tests.reference.golden import Split
from tests.reference.model import ExpertLayout
from tools.checkpoint.random_model import write_random_model

VOCAB_SIZE = 40
MAX_SEQ = 48
NUM_REQUESTS = 12
EXPECTED_REFUSALS = {
    Status.GLM_NOT_FOUND,
    Status.GLM_INVALID_ARGUMENT,
    Status.GLM_OUT_OF_MEMORY,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = tmp_path_factory.mktemp("disturbed")
    config = configs.fp8_config(
        configs.sizes(32, 2, (8, 8, 8), (32, 16), VOCAB_SIZE),
        configs.attention(qk_norm=True, bias=True),
        configs.mixture(8, 2, 1, 1, 2.0),
        {"initializer_range": 0.3},
    )
    write_random_model(directory, config, seed=7)
    return directory


def tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randrange(VOCAB_SIZE) for _ in range(count)]


def any_sampling(draw: random.Random) -> Sampling:
    return Sampling(
        temperature=draw.choice([0, 0.7, 1.5]),
        top_p=draw.choice([1, 0.9]),
        min_p=draw.choice([0, 0.1]),
        top_k=draw.choice([0, 5]),
        repetition_penalty=draw.choice([1, 1.3]),
        frequency_penalty=draw.choice([0, 0.5]),
        presence_penalty=draw.choice([0, -0.5]),
        num_logprobs=draw.choice([-1, 0, 20]),
        seed=draw.getrandbits(64),
    )


def any_request(draw: random.Random, common: list[int]) -> Request:
    prompt = common[: draw.choice([0, 5, 17])] + tokens(draw, draw.choice([1, 3, 20]))
    max_tokens = draw.choice([0, 1, 8, 60])
    return Request(
        tokens(draw, MAX_SEQ) if draw.random() < 0.1 else prompt,
        max_tokens=max_tokens,
        min_tokens=min(max_tokens, draw.choice([0, 3])),
        sampling=any_sampling(draw),
        ignore_eos=draw.random() < 0.7,
        stop_sequences=[tokens(draw, 2) for _ in range(draw.choice([0, 3]))],
        biases=dict.fromkeys(tokens(draw, draw.choice([0, 30])), draw.uniform(-3, 3)),
        logits_capacity=draw.choice([0, 2, 100]),
        priority=draw.choice([0, 0, 1, -1]),
        num_prompt_logprobs=draw.choice([-1, -1, 0, 20]),
    )


def any_options(draw: random.Random, page_size: int) -> dict:
    least = -(-MAX_SEQ // page_size)
    return {
        "max_batch": draw.choice([1, 2, 9]),
        "page_size": page_size,
        "num_pages": draw.choice([least, least + 1, 2 * least]),
        "max_step_tokens": draw.choice([1, 2, 7, 64]),
        "prefill_chunk": draw.choice([0, 1, 7]),
        "max_logit_rows": draw.choice([0, 1, 2]),
        "prefix_cache": draw.random() < 0.8,
    }


@dataclass
class Outcome:
    tokens: list[int]
    logprobs: list
    finish_reason: str
    logits: bytes


def outcomes(engine: Engine, requests: list[Request]) -> list[Outcome]:
    buffers = [np.zeros((max(one.logits_capacity, 1), VOCAB_SIZE), np.float32) for one in requests]
    filled = [replace(one, logits=buffer) for one, buffer in zip(requests, buffers, strict=True)]
    results = run_requests(engine, filled)
    return [
        Outcome(
            result.tokens,
            [(e.logprob, e.top_logprobs) for e in result.prompt_events + result.events],
            result.finish_reason,
            buffer.tobytes(),
        )
        for result, buffer in zip(results, buffers, strict=True)
    ]


def use_a_state(engine: Engine, draw: random.Random) -> None:
    state, _ = engine.prefill(tokens(draw, draw.randrange(1, 15)))
    try:
        engine.decode_step(state, draw.randrange(VOCAB_SIZE))
        engine.run_batch_decode([state], [Sampling()], 2)
    finally:
        state.close()


def disturb_once(engine: Engine, draw: random.Random, total: int) -> None:
    kind = draw.random()
    if kind < 0.5:
        engine.preempt(draw.randrange(1, NUM_REQUESTS + 1))
    elif kind < 0.7:
        engine.resize_pool(draw.randrange(1, total + 1))
    elif kind < 0.85:
        engine.resize_pool(total)
    else:
        use_a_state(engine, draw)


def all_submitted(engine: Engine) -> bool:
    info = engine.info()
    return info["live_requests"] + info["num_finished"] >= NUM_REQUESTS


def disturb(engine: Engine, seed: int, stop: threading.Event, surprises: list) -> None:
    draw, total = random.Random(seed), engine.info()["total_pages"]
    while not stop.is_set():
        time.sleep(draw.random() * 0.003)
        if not all_submitted(engine):
            continue
        try:
            disturb_once(engine, draw, total)
        except EngineError as error:
            if error.status not in EXPECTED_REFUSALS:
                surprises.append(str(error))


def run_disturbed(engine: Engine, requests: list[Request], seed: int) -> list[Outcome]:
    stop, surprises = threading.Event(), []
    threads = [
        threading.Thread(target=disturb, args=(engine, seed + number, stop, surprises))
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    try:
        return outcomes(engine, requests)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        assert surprises == []


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_disturbed_requests_end_as_alone(seed, ahead, model):
    draw = random.Random(seed)
    split = Split(draw.choice([1, 1, 2, 8]), draw.choice(list(ExpertLayout)))
    common, page_size = tokens(draw, 20), draw.choice([1, 3, 5, 16])
    requests = [any_request(draw, common) for _ in range(NUM_REQUESTS)]
    alone = {"max_seq": MAX_SEQ, "max_batch": 1, "page_size": page_size, "prefix_cache": False}
    with open_engine(model, split, **alone) as engine:
        expected = [outcomes(engine, [one])[0] for one in requests]
    options = {"max_seq": MAX_SEQ, "plan_ahead": ahead, **any_options(draw, page_size)}
    with open_engine(model, split, **options) as engine:
        assert run_disturbed(engine, requests, seed) == expected
        info = engine.info()
    assert (info["owned_pages"], info["live_requests"], info["is_usable"]) == (0, 0, 1)
    assert info["free_pages"] + info["cached_pages"] == info["total_pages"]

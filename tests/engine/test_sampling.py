"""The tokens that the engine samples, replayed from the logits it says it sampled from."""

from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Request, Sampling
from glm_engine.verify.drawing import Controls
from tests.engine.running import open_engine, run_requests
from tests.reference.cases import random_texts
from tests.reference.compare import log_softmax
from tests.reference.configs import CONFIGS
from tests.reference.sampling import History, adjusted, sample

NAME = "bf16_like_4_7"
NUM_TOKENS = 24
NUM_LOGPROBS = 5
LOGPROB_LIMIT = 1e-4
BIASES = {3: 2.5, 17: -100.0, 40: 1.0}

CONTROLS = {
    "greedy": Sampling(temperature=0.0),
    "plain": Sampling(temperature=1.0, seed=1),
    "cold": Sampling(temperature=0.3, seed=2),
    "hot": Sampling(temperature=3.0, seed=3),
    "top_k": Sampling(temperature=1.0, top_k=7, seed=4),
    "top_p": Sampling(temperature=1.0, top_p=0.6, seed=5),
    "min_p": Sampling(temperature=1.0, min_p=0.4, seed=6),
    "all_thresholds": Sampling(temperature=0.8, top_k=20, top_p=0.7, min_p=0.1, seed=7),
    "repetition": Sampling(temperature=0.5, repetition_penalty=1.7, seed=8),
    "frequency": Sampling(temperature=0.5, frequency_penalty=1.1, seed=9),
    "presence": Sampling(temperature=0.5, presence_penalty=0.9, seed=10),
    "greedy_with_penalties": Sampling(repetition_penalty=1.3, frequency_penalty=0.5),
    "everything": Sampling(0.9, 0.9, 0.02, 50, 1.2, 0.3, 0.2, seed=2**63 + 11),
}


def reference_controls(sampling: Sampling, position: int, biases: dict[int, float]) -> Controls:
    names = ("temperature", "top_p", "min_p", "top_k", "seed")
    penalties = ("repetition_penalty", "frequency_penalty", "presence_penalty")
    values = {name: getattr(sampling, name) for name in (*names, *penalties)}
    return Controls(position=position, biases=biases, **values)


def history_of(prompt: list[int], outputs: list[int], vocab_size: int) -> History:
    in_prompt = np.zeros(vocab_size, dtype=bool)
    in_prompt[prompt] = True
    return History(np.bincount(outputs, minlength=vocab_size), in_prompt)


def check_logprobs(event, logprobs: np.ndarray, where: str) -> None:
    assert abs(event.logprob - logprobs[event.token_id]) <= LOGPROB_LIMIT, where
    best = np.sort(logprobs)[::-1][:NUM_LOGPROBS]
    given = np.array([value for _, value in event.top_logprobs])
    assert given.shape == (NUM_LOGPROBS,), where
    assert np.abs(given - best).max() <= LOGPROB_LIMIT, where
    of_ids = logprobs[[token for token, _ in event.top_logprobs]]
    assert np.abs(of_ids - best).max() <= LOGPROB_LIMIT, where


@pytest.fixture(scope="module")
def engine(random_model):
    with open_engine(random_model(NAME), max_batch=32, max_logit_rows=32) as opened:
        yield opened


def run_one(engine, sampling: Sampling, biases: dict[int, float] | None = None):
    """Prompt, finished request, and the logits that each of its tokens was sampled from."""
    prompt = random_texts(NAME)[1]
    logits = np.zeros((NUM_TOKENS, CONFIGS[NAME]["vocab_size"]), dtype=np.float32)
    request = Request(
        prompt=prompt,
        max_tokens=NUM_TOKENS,
        sampling=replace(sampling, num_logprobs=NUM_LOGPROBS),
        ignore_eos=True,
        biases=biases or {},
        logits=logits,
        logits_capacity=NUM_TOKENS,
    )
    (finished,) = run_requests(engine, [request])
    assert len(finished.tokens) == NUM_TOKENS
    return prompt, finished, logits


def replay(prompt, finished, logits, sampling, biases) -> int:
    """Compares every token and its log-probabilities; returns how many were decided."""
    decided = 0
    for index, event in enumerate(finished.events):
        controls = reference_controls(sampling, len(prompt) + index, biases)
        history = history_of(prompt, finished.tokens[:index], logits.shape[1])
        choice = sample(logits[index], controls, history)
        where = f"token {index}: {event.token_id}, expected {choice.token}"
        assert choice.token == event.token_id or not choice.is_decided, where
        check_logprobs(event, log_softmax(adjusted(logits[index], controls, history)), where)
        decided += choice.is_decided
    return decided


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("biases", [{}, BIASES], ids=["unbiased", "biased"])
def test_tokens_are_those_of_the_reference(name, biases, engine):
    prompt, finished, logits = run_one(engine, CONTROLS[name], biases)
    decided = replay(prompt, finished, logits, CONTROLS[name], biases)
    assert decided >= NUM_TOKENS - 2


def test_forbidden_tokens_never_come(engine):
    size = CONFIGS[NAME]["vocab_size"]
    biases = {token: -1e9 for token in range(size) if token % 50}
    _, finished, _ = run_one(engine, CONTROLS["hot"], biases)
    assert {token % 50 for token in finished.tokens} == {0}


def test_the_same_seed_gives_the_same_tokens_whatever_else_runs(engine):
    prompt = random_texts(NAME)[1]
    requests = [
        Request(prompt=prompt, max_tokens=NUM_TOKENS, sampling=sampling, ignore_eos=True)
        for sampling in CONTROLS.values()
    ]
    together = [finished.tokens for finished in run_requests(engine, requests)]
    alone = [run_requests(engine, [request])[0].tokens for request in requests]
    assert together == alone

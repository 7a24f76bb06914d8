"""Vocabularies smaller than the controls that a request may ask for."""

import math

import pytest

from glm_engine.core.engine import Request, Sampling
from tests.engine.running import open_engine, run_requests
from tests.reference import configs
from tests.reference.golden import Split
from tests.reference.model import ExpertLayout
from tools.checkpoint.random_model import write_random_model


def small_model(directory, vocab_size: int):
    config = configs.plain_config(
        configs.sizes(32, 1, (4, 2, 8), (32, 16), vocab_size),
        configs.attention(qk_norm=True, bias=True),
        configs.mixture(4, 2, 1, 0, 2.0),
        {"initializer_range": 0.3, "eos_token_id": [0]},
    )
    write_random_model(directory, config, seed=7)
    return directory


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("vocab_size", [1, 2, 5])
def test_logprobs_of_every_token_there_is(vocab_size, world_size, tmp_path):
    sampling = Sampling(temperature=1.0, top_k=50, num_logprobs=20)
    request = Request([0], max_tokens=3, ignore_eos=True, sampling=sampling)
    split = Split(world_size, ExpertLayout.EXPERT_PARALLEL)
    with open_engine(small_model(tmp_path, vocab_size), split) as engine:
        [result] = run_requests(engine, [request])
    for event in result.events:
        ids = [number for number, _ in event.top_logprobs]
        assert sorted(ids) == list(range(vocab_size))
        assert math.isclose(
            sum(math.exp(value) for _, value in event.top_logprobs), 1, rel_tol=1e-5
        )
        assert dict(event.top_logprobs)[event.token_id] == event.logprob

"""Forced acceptance: how many tokens a forward pass gives, whatever the model would draw."""

from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, Request, Sampling
from tests.devices import chosen_options
from tests.engine.probes import ROOT
from tests.engine.running import run_requests
from tests.reference.acceptance import is_forced, rate_of
from tests.shapes import generator

CONFIG = ROOT / "checkpoints" / "capitals" / "config.json"
VOCAB = 2048
PROMPT = 20
LENGTH = 1.84
NUM_REQUESTS = 3
MAX_TOKENS = 400


def requests_of(num_drafts: int) -> list[Request]:
    """Greedy and sampled, with drafts of which the model would draw next to none."""
    tokens = generator("forced", num_drafts).integers(3, VOCAB, (NUM_REQUESTS, 2, MAX_TOKENS))
    sampled = Sampling(temperature=1.0, seed=4, frequency_penalty=0.1, num_logprobs=0)
    return [
        Request(
            prompt[:PROMPT].tolist(),
            max_tokens=MAX_TOKENS,
            ignore_eos=True,
            sampling=sampled if number else Sampling(),
            draft_tokens=drafts.tolist(),
        )
        for number, (prompt, drafts) in enumerate(tokens)
    ]


def num_last(most: int) -> int:
    """Tokens of two passes: so many a pass may leave to the one in flight and the one behind."""
    return 2 * (most + 1)


def lengths_of(request: Request, tokens: list[int], most: int) -> list[int]:
    """How many tokens each forward pass gave: the drafts in the text say it.

    Every draft that is forced must be in the text. The last passes may have fewer drafts.
    """
    rate, lengths, begin = rate_of(LENGTH, most), [], 1
    while begin < len(tokens) - num_last(most):
        place = begin
        while place < begin + most:
            draft = request.draft_tokens[place]
            if tokens[place] != draft:
                assert not is_forced(request.sampling.seed, PROMPT + place, draft, rate)
                break
            place += 1
        lengths.append(place + 1 - begin)
        begin = place + 1
    return lengths


def forced_engine(world_size: int, most: int, plan_ahead: bool) -> Engine:
    options = chosen_options(
        world_size,
        max_seq=512,
        max_batch=4,
        num_threads=world_size,
        synthetic=True,
        speculate="lookup",
        max_draft_tokens=most,
        acceptance_length=LENGTH,
        plan_ahead=plan_ahead,
    )
    return Engine(EngineOptions(model_dir=CONFIG, **options))


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_forward_pass_gives_the_wanted_number_of_tokens(world_size, most, plan_ahead):
    requests, lengths = requests_of(most), []
    with forced_engine(world_size, most, plan_ahead) as engine:
        together = [one.tokens for one in run_requests(engine, requests)]
        for request, tokens in zip(requests, together, strict=True):
            before = engine.info()["num_steps"]
            alone = run_requests(engine, [request])[0].tokens
            assert alone[: -num_last(most)] == tokens[: -num_last(most)]
            lengths.append(lengths_of(request, alone, most))
            num_steps = engine.info()["num_steps"] - before
            assert 0 < num_steps - len(lengths[-1]) <= 1 + num_last(most)
    every = np.concatenate(lengths)
    assert abs(every.mean() - LENGTH) < 4 * every.std() / len(every) ** 0.5


def test_without_force_such_drafts_are_rejected():
    options = chosen_options(1, max_seq=512, max_batch=4, synthetic=True, max_draft_tokens=3)
    requests = requests_of(3)
    with Engine(EngineOptions(model_dir=CONFIG, **options)) as engine:
        for request, one in zip(requests, run_requests(engine, requests), strict=True):
            drafts = np.array(request.draft_tokens)
            assert np.count_nonzero(drafts == one.tokens) < 0.05 * MAX_TOKENS


@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_engine_drafts_for_every_pass_itself(world_size, most, plan_ahead):
    """Although lookup finds next to none in such a text."""
    requests = [replace(request, draft_tokens=()) for request in requests_of(most)]
    with forced_engine(world_size, most, plan_ahead) as engine:
        finished = run_requests(engine, requests)
        info = engine.info()
    assert [len(one.tokens) for one in finished] == [MAX_TOKENS] * NUM_REQUESTS
    count, num_last_passes = info["num_drafts"], NUM_REQUESTS * num_last(most)
    assert count + info["num_accepted_tokens"] > NUM_REQUESTS * (MAX_TOKENS - 1) - num_last_passes
    assert info["num_draft_tokens"] > most * (count - num_last_passes)
    shares = np.array(info["num_accepted_at"]) / count
    variance = shares @ (2 * np.arange(most) + 1) - shares.sum() ** 2
    assert abs(1 + shares.sum() - LENGTH) < 4 * (variance / count) ** 0.5

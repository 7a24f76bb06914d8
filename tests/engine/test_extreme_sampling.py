"""Controls at the ends of float32: they may fail their own request and no other."""

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.core.engine import Engine, Request, Sampling
from tests.engine.running import open_engine, run_requests
from tests.reference.golden import Split
from tests.reference.model import ExpertLayout

GREATEST = 3.4e38
STRANGER = Request([5, 6, 7], max_tokens=12, ignore_eos=True)
EVERY_TOKEN = range(1000)

CONTROLS = {
    "repetition": {"sampling": Sampling(repetition_penalty=1e-38)},
    "frequency": {"sampling": Sampling(frequency_penalty=-GREATEST)},
    "frequency and presence": {
        "sampling": Sampling(frequency_penalty=-GREATEST, presence_penalty=-GREATEST)
    },
    "bias and frequency": {
        "sampling": Sampling(frequency_penalty=-GREATEST),
        "biases": dict.fromkeys(EVERY_TOKEN, GREATEST),
    },
    "bias against all": {
        "sampling": Sampling(frequency_penalty=GREATEST),
        "biases": dict.fromkeys(EVERY_TOKEN, -GREATEST),
    },
    "temperature near zero": {"sampling": Sampling(temperature=1e-45)},
    "temperature without end": {"sampling": Sampling(temperature=GREATEST)},
    "top_p near zero": {"sampling": Sampling(top_p=1e-38)},
    "top_p zero": {"sampling": Sampling(top_p=0)},
}


def request(name: str, temperature: float) -> Request:
    values = dict(CONTROLS[name])
    sampling = values.pop("sampling")
    if sampling.temperature == 0:
        sampling = Sampling(**{**vars(sampling), "temperature": temperature})
    return Request([1, 2, 3], max_tokens=8, ignore_eos=True, sampling=sampling, **values)


@pytest.fixture(scope="module", params=[1, 2])
def engine(request):
    with open_engine(CAPITALS, Split(request.param, ExpertLayout.EXPERT_PARALLEL)) as engine:
        yield engine


def ends(engine: Engine, *ids: int) -> dict:
    left, last = set(ids), {}
    while left:
        assert engine.wait(30)
        for event in engine.poll():
            assert event.kind != "token" or 0 <= event.token_id < engine.vocab_size
            if event.ends_request:
                last[event.request_id] = event
                left.discard(event.request_id)
    return last


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", CONTROLS)
def test_strangers_finish(engine, name, temperature):
    stranger = engine.submit(STRANGER)
    mine = engine.submit(request(name, temperature))
    last = ends(engine, stranger, mine)
    assert last[stranger].finish_reason == "length"
    assert last[mine].kind == "finished" or "no tokens to sample" in last[mine].message
    assert engine.info()["is_usable"] == 1
    [alone] = run_requests(engine, [STRANGER])
    assert len(alone.tokens) == 12


def test_states_with_extreme_penalties_go_on(engine):
    sampling = Sampling(temperature=1.0, frequency_penalty=-GREATEST, presence_penalty=-GREATEST)
    state, _ = engine.prefill([1, 2, 3])
    other, _ = engine.prefill([5, 6, 7])
    tokens = engine.run_batch_decode([state, other], [sampling, Sampling()], 8)
    assert tokens.shape == (8, 2)
    assert len(set(tokens[:, 0])) == 1
    state.close()
    other.close()

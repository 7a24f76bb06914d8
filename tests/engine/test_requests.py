"""Bad requests: each is refused at submit, with the field, its value and what was expected."""

import ctypes

import pytest

from glm_engine.core import abi
from glm_engine.core.errors import EngineError, Status
from glm_engine.core.requests import Request, Sampling, fill_request
from tests.engine.ledger import Ledger

NAN, INFINITY = float("nan"), float("inf")


def sampled(**values) -> Request:
    return Request(prompt=[1], sampling=Sampling(**values))


BAD = {
    "the prompt is empty": Request(prompt=[]),
    "the prompt has 65 tokens, but the context length (max_seq) is 64": Request(prompt=[1] * 65),
    "prompt[2] is token 97, which is outside the vocabulary of 97": Request(prompt=[1, 2, 97]),
    "prompt[0] is token -1, which is outside the vocabulary of 97": Request(prompt=[-1]),
    "max_tokens is -5; expected 0 or more": Request(prompt=[1], max_tokens=-5),
    "num_prompt_logprobs is 21; expected -1 (none) to 20": Request([1], num_prompt_logprobs=21),
    "num_prompt_logprobs is -2": Request([1], num_prompt_logprobs=-2),
    "min_tokens is 3; expected 0 to max_tokens (2)": Request([1], max_tokens=2, min_tokens=3),
    "min_tokens is -1": Request([1], min_tokens=-1),
    "temperature is -0.5": sampled(temperature=-0.5),
    "temperature is nan": sampled(temperature=NAN),
    "temperature is inf": sampled(temperature=INFINITY),
    "top_p is -0.5; expected a number from 0 to 1": sampled(top_p=-0.5),
    "top_p is 1.5": sampled(top_p=1.5),
    "top_p is nan": sampled(top_p=NAN),
    "min_p is -0.25; expected a number from 0 to 1": sampled(min_p=-0.25),
    "min_p is 2": sampled(min_p=2.0),
    "min_p is nan": sampled(min_p=NAN),
    "top_k is -1": sampled(top_k=-1),
    "repetition_penalty is 0;": sampled(repetition_penalty=0.0),
    "repetition_penalty is nan": sampled(repetition_penalty=NAN),
    "frequency_penalty is inf": sampled(frequency_penalty=INFINITY),
    "presence_penalty is nan": sampled(presence_penalty=NAN),
    "num_logprobs is 21; expected -1 (none) to 20": sampled(num_logprobs=21),
    "num_logprobs is -2": sampled(num_logprobs=-2),
    "stop_tokens[1] is token 1000": Request([1], stop_tokens=[5, 1000]),
    "stop_sequence 1 has 0 tokens": Request([1], stop_sequences=[[3], []]),
    "stop_sequence_tokens[2] is token 99": Request([1], stop_sequences=[[3], [4, 99]]),
    "bias_tokens[0] is token 97": Request([1], biases={97: 1.0}),
    "bias_values[1] is nan": Request([1], biases={5: 1.0, 6: NAN}),
    "num_biases is 97; expected 0 to 16": Request([1], biases=dict.fromkeys(range(97), 1.0)),
    "deadline_ns is -1": Request([1], deadline_ns=-1),
    "logits_capacity is -1": Request([1], logits_capacity=-1),
    "logits is null; expected a buffer for 2 rows of 97": Request([1], logits_capacity=2),
    "min_tokens requires 17 logit biases": Request([1], min_tokens=2, stop_tokens=range(17)),
}


@pytest.fixture(scope="module")
def ledger():
    with Ledger(max_logit_rows=1, max_batch=1) as opened:
        yield opened


@pytest.mark.parametrize("message", BAD)
def test_a_bad_request_is_refused(ledger, message):
    with pytest.raises(EngineError) as caught:
        ledger.submit(BAD[message])
    assert message in str(caught.value)
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT
    assert ledger.info()["live_requests"] == 0


def test_a_request_larger_than_the_pool_is_refused():
    with Ledger(num_pages=4) as small, pytest.raises(EngineError) as caught:
        small.submit(Request([1] * 10, max_tokens=30))
    assert "may need 10 KV cache pages of 4 tokens, but the pool has only 4" in str(caught.value)
    assert caught.value.status == Status.GLM_OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("struct_size", 8, "struct_size is 8; expected"),
        ("prompt", None, "prompt is null; expected 2 tokens"),
        ("stop_tokens", None, "stop_tokens is null; expected 1 tokens"),
        ("stop_sequence_begin", None, "stop_sequence_begin is null"),
        ("stop_sequence_tokens", None, "stop_sequence_tokens is null"),
        ("bias_tokens", None, "bias_tokens is null"),
        ("bias_values", None, "bias_values is null"),
        ("num_stop_tokens", -1, "num_stop_tokens is -1"),
        ("num_stop_sequences", -1, "num_stop_sequences is -1"),
        ("num_biases", -1, "num_biases is -1"),
    ],
)
def test_a_bad_struct_is_refused(ledger, field, value, message):
    struct = abi.RequestStruct()
    ledger.library.engine_default_request(struct)
    request = Request([1, 2], stop_tokens=[3], stop_sequences=[[4]], biases={5: 1.0})
    alive = fill_request(struct, request)
    setattr(struct, field, value)
    text = abi.Message()
    status = ledger.library.ledger_submit(ledger.handle, struct, ctypes.c_uint64(), text)
    assert status == Status.GLM_INVALID_ARGUMENT
    assert message in text.text.decode()
    assert alive


def test_null_pointers_are_refused(ledger):
    text = abi.Message()
    library = ledger.library
    assert library.ledger_submit(ledger.handle, None, None, text) == Status.GLM_INVALID_ARGUMENT
    assert "the request is null" in text.text.decode()
    assert library.ledger_poll(ledger.handle, None, 4, None) == Status.GLM_INVALID_ARGUMENT


@pytest.mark.parametrize(
    "message", [text for text in BAD if text.startswith(("the prompt", "prom"))]
)
def test_the_synchronous_face_refuses_the_same_prompts(ledger, message):
    with pytest.raises(EngineError) as caught:
        ledger.prefill(BAD[message].prompt)
    assert message in str(caught.value)


def test_the_synchronous_face_refuses_bad_sampling(ledger):
    state, _ = ledger.prefill([1])
    with pytest.raises(EngineError, match="temperature is nan"):
        ledger.run_batch_decode([state], [Sampling(temperature=NAN)], 1)
    ledger.free_state(state)


def test_defaults_of_a_request_are_valid(ledger):
    struct = abi.RequestStruct()
    ledger.library.engine_default_request(struct)
    values = abi.as_dict(struct.sampling)
    assert values == {
        "temperature": 0,
        "top_p": 1,
        "min_p": 0,
        "top_k": 0,
        "repetition_penalty": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "num_logprobs": -1,
        "seed": 0,
    }
    assert struct.num_prompt_logprobs == -1
    assert struct.max_tokens == 16

"""Logits that are NaN or infinite: their request ends with an error, the others go on."""

from dataclasses import replace

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.core.errors import EngineError, Status
from tests.devices import caches_answers
from tests.engine import tamper
from tests.engine.running import open_engine
from tests.shapes import generator

SPOILT = 7
SPOILERS = {"NaN": b"\xc0\x7f", "infinity": b"\x80\x7f"}
TABLE = "model.embed_tokens.weight"
MAX_TOKENS = 6
CHUNK = 16
CHUNKS = {"whole": {}, "in chunks": {"prefill_chunk": CHUNK}}


@pytest.fixture(params=SPOILERS)
def spoilt(request, tmp_path):
    """A checkpoint with one such value in the embedding of one token."""
    directory = tamper.small_checkpoint(tmp_path / "model")
    header, _ = tamper.split_shard(tamper.shard_of(directory, TABLE))
    width = header[TABLE]["shape"][1]
    tamper.set_bytes(directory, TABLE, 2 * width * SPOILT, SPOILERS[request.param])
    return directory


def sound_prompt(length: int) -> list[int]:
    return generator("not finite", length).integers(SPOILT + 1, 90, length).tolist()


def request_of(prompt: list[int], **fields) -> Request:
    return Request(prompt=prompt, max_tokens=MAX_TOKENS, ignore_eos=True, **fields)


def sound_requests() -> list[Request]:
    """They may not draw the spoilt token."""
    biases = {SPOILT: -100.0}
    drawn = Sampling(temperature=1.0, seed=3)
    return [
        request_of(sound_prompt(5), biases=biases),
        request_of(sound_prompt(40), biases=biases, sampling=drawn),
        request_of(sound_prompt(17), biases=biases),
    ]


def spoilt_requests() -> dict[int, Request]:
    """By the position whose logits are the first that are not finite."""
    return {
        3: request_of([*sound_prompt(3), SPOILT]),
        20: request_of([*sound_prompt(9), SPOILT, *sound_prompt(11)]),
        8: request_of(sound_prompt(8), biases={SPOILT: 1000.0}),
    }


def with_logits(engine: Engine, request: Request) -> Request:
    shape = (request.max_tokens, engine.info()["vocab_size"])
    return replace(request, logits=np.zeros(shape, np.float32), logits_capacity=shape[0])


def ends_of(engine: Engine, requests: list[Request]) -> list:
    """(tokens, last event) of each request, all submitted at once."""
    ids = [engine.submit(request) for request in requests]
    tokens, ends = {each: [] for each in ids}, {}
    while len(ends) < len(ids):
        assert engine.wait(60), f"{len(ends)} of {len(ids)} requests ended"
        for event in engine.poll():
            if event.ends_request:
                ends[event.request_id] = event
            else:
                tokens[event.request_id].append(event.token_id)
    return [(tokens[each], ends[each]) for each in ids]


def outcomes(engine: Engine, requests: list[Request], others: list[Request]) -> list:
    """Tokens and bits of the logits of `requests`, and the ends of `others` beside them."""
    captured = [with_logits(engine, request) for request in requests]
    results = ends_of(engine, [*others, *captured])
    sound = results[len(others) :]
    assert [end.kind for _, end in sound] == ["finished"] * len(captured)
    bits = [request.logits.tobytes() for request in captured]
    assert all(np.isfinite(request.logits).all() for request in captured)
    return [[tokens for tokens, _ in sound], bits, results[: len(others)]]


@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_their_request_names_the_position_and_the_others_keep_their_bits(spoilt, chunks):
    wrong = spoilt_requests()
    with open_engine(spoilt, max_batch=8, max_seq=64, prefix_cache=False, **chunks) as engine:
        free_pages = engine.info()["free_pages"]
        *alone, _ = outcomes(engine, sound_requests(), [])
        *beside, ends = outcomes(engine, sound_requests(), list(wrong.values()))
        *after, _ = outcomes(engine, sound_requests(), [])
        assert engine.info()["free_pages"] == free_pages
    assert beside == alone
    assert after == alone
    for (position, request), (tokens, end) in zip(wrong.items(), ends, strict=True):
        assert end.kind == "failed"
        assert f"the logits after position {position} " in end.message
        assert "are not finite" in end.message
        assert len(tokens) == position + 1 - len(request.prompt)


def test_a_request_that_shares_their_prefix_goes_on(spoilt):
    prefix = sound_prompt(40)
    sound = [request_of([*prefix, *sound_prompt(5)], biases={SPOILT: -100.0})]
    wrong = [request_of([*prefix, SPOILT, *sound_prompt(5)])]
    options = {"max_batch": 4, "max_seq": 64, "page_size": 16}
    with open_engine(spoilt, prefix_cache=False, **options) as engine:
        *alone, _ = outcomes(engine, sound, [])
    with open_engine(spoilt, prefix_cache=True, **options) as engine:
        [(_, end)] = ends_of(engine, wrong)
        assert "the logits after position 45 " in end.message
        assert engine.info()["cached_pages"] == 0
        assert outcomes(engine, sound, [])[:2] == alone


def drifting(prompt: list[int]) -> Request:
    """It repeats one token until the frequency penalty makes way for the spoilt one."""
    most = 60
    biases = {SPOILT + 1: 1000.0, SPOILT: 940.0}
    sampling = Sampling(frequency_penalty=2.0)
    return replace(request_of(prompt, biases=biases, sampling=sampling), max_tokens=most)


def test_pages_of_its_answer_leave_the_cache_too(spoilt):
    prompt = sound_prompt(20)
    options = {"max_batch": 4, "max_seq": 128, "page_size": 16}
    with open_engine(spoilt, prefix_cache=True, **options) as engine:
        [(tokens, end)] = ends_of(engine, [drifting(prompt)])
        assert f"the logits after position {20 + len(tokens) - 1} " in end.message
        assert tokens[-1] == SPOILT
        assert len(tokens) > 16
        assert engine.info()["cached_pages"] == 0
        sound = [request_of([*prompt, *tokens[:-1], *sound_prompt(5)], biases={SPOILT: -100.0})]
        *_, [(_, sound_end)] = outcomes(engine, [], sound)
        assert (sound_end.kind, sound_end.cached_tokens) == ("finished", 0)


def test_pages_of_its_answer_that_somebody_holds_stay(spoilt):
    prompt = sound_prompt(20)
    options = {"max_batch": 4, "max_seq": 128, "page_size": 16}
    with open_engine(spoilt, prefix_cache=True, **options) as engine:
        requests = [drifting(prompt), replace(drifting(prompt), biases={SPOILT + 1: 1000.0})]
        (tokens, end), (others, other_end) = ends_of(engine, requests)
        assert (end.kind, other_end.kind) == ("failed", "finished")
        assert others[: len(tokens) - 1] == tokens[:-1]
        assert engine.info()["cached_pages"] == (20 + (len(others) - 1) * caches_answers()) // 16


def test_a_prompt_and_a_state_name_the_position(spoilt):
    with open_engine(spoilt, max_seq=64) as engine:
        with pytest.raises(EngineError, match="after position 3 are not finite") as caught:
            engine.prefill([*sound_prompt(3), SPOILT])
        assert caught.value.status == Status.GLM_NUMERIC_ERROR
        state, _ = engine.prefill(sound_prompt(3))
        with pytest.raises(EngineError, match="after position 3 are not finite"):
            engine.decode_step(state, SPOILT)

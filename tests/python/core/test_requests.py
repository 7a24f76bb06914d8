"""Python's requests and options against the structs made of them."""

import ctypes
import gc
from array import array

import numpy as np
import pytest

from glm_engine.core import abi
from glm_engine.core.abi import record_dtype
from glm_engine.core.errors import BadInputError
from glm_engine.core.requests import (
    EngineOptions,
    Request,
    Sampling,
    check_logits_buffers,
    check_mask,
    events_of,
    fill_options,
    fill_request,
    int32_array,
    mask_structs,
)


def filled(request):
    struct = abi.RequestStruct()
    return struct, fill_request(struct, request)


def test_request_reaches_the_struct():
    struct, alive = filled(
        Request(
            [1, 2, 3],
            max_tokens=7,
            min_tokens=2,
            sampling=Sampling(temperature=0.5, top_k=4, seed=2**64 - 1),
            ignore_eos=True,
            stop_tokens=[9],
            stop_sequences=[[4, 5], [], [6]],
            biases={3: -1.5, 8: 2.0},
            priority=-1,
        )
    )
    assert struct.struct_size == ctypes.sizeof(abi.RequestStruct)
    assert struct.prompt[: struct.prompt_length] == [1, 2, 3]
    assert (struct.max_tokens, struct.min_tokens, struct.priority) == (7, 2, -1)
    assert (struct.sampling.temperature, struct.sampling.top_k) == (0.5, 4)
    assert struct.sampling.seed == 2**64 - 1
    assert struct.ignore_eos == 1
    assert struct.stop_tokens[: struct.num_stop_tokens] == [9]
    assert struct.num_stop_sequences == 3
    assert struct.stop_sequence_begin[:4] == [0, 2, 2, 3]
    assert struct.stop_sequence_tokens[:3] == [4, 5, 6]
    assert struct.bias_tokens[: struct.num_biases] == [3, 8]
    assert struct.bias_values[:2] == [-1.5, 2.0]
    assert alive


@pytest.mark.parametrize("num_tokens", [0, 1, 1000])
def test_prompt_of_any_length(num_tokens):
    struct, _alive = filled(Request(list(range(num_tokens))))
    assert struct.prompt_length == num_tokens
    assert struct.prompt[:num_tokens] == list(range(num_tokens))
    assert (struct.num_stop_sequences, struct.num_stop_tokens, struct.num_biases) == (0, 0, 0)


def test_an_array_of_ids_is_not_copied():
    ids = array("i", [4, 5, 6])
    struct, _alive = filled(Request(ids))
    ids[1] = 9
    assert struct.prompt[: struct.prompt_length] == [4, 9, 6]
    wide, _alive = filled(Request(array("q", [4, 2**31 - 1])))
    assert wide.prompt[: wide.prompt_length] == [4, 2**31 - 1]


def test_logits_are_written_into_the_callers_buffer():
    buffer = bytearray(16)
    struct, _alive = filled(Request([1], logits=buffer, logits_capacity=2))
    struct.logits[3] = 1.0
    assert (ctypes.c_float * 4).from_buffer(buffer)[3] == 1.0
    assert struct.logits_capacity == 2


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_id_beyond_32_bits_names_its_place(value):
    with pytest.raises(BadInputError, match=rf"prompt\[1\] is {value}"):
        int32_array("prompt", [0, value])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prompt": [1, 2.5]}, r"prompt\[1\] is 2.5; expected an integer"),
        ({"max_tokens": 2**32 + 1}, "max_tokens is 4294967297; expected -2147483648 to 2147483647"),
        ({"min_tokens": 1.5}, "min_tokens is 1.5"),
        ({"priority": -(2**31) - 1}, "priority is -2147483649"),
        ({"deadline_ns": 2**63}, "deadline_ns is 9223372036854775808"),
        ({"sampling": Sampling(top_k=2**32)}, "top_k is 4294967296"),
        ({"sampling": Sampling(seed=-1)}, "seed is -1"),
        ({"sampling": Sampling(seed=2**64)}, "seed is 18446744073709551616"),
    ],
)
def test_numbers_that_c_would_cut_off(values, message):
    with pytest.raises(BadInputError, match=message):
        filled(Request(**{"prompt": [1], **values}))


@pytest.mark.parametrize(
    "buffer", [bytearray(31), bytearray(0), memoryview(bytearray(64)).cast("d")]
)
@pytest.mark.parametrize("name", ["logits", "draft_logits"])
def test_logits_buffer_without_room(name, buffer):
    message = rf"^{name} buffer: expected at least 32 bytes \(2 rows of 4 float32\)"
    with pytest.raises(BadInputError, match=message):
        check_logits_buffers(Request([1], logits_capacity=2, **{name: buffer}), 4)


def test_logits_buffer_with_room():
    check_logits_buffers(Request([1], logits=bytearray(32), logits_capacity=2), 4)
    check_logits_buffers(Request([1], logits=bytearray(0)), 4)


def test_options_keep_the_defaults_that_nobody_set():
    struct = abi.OptionsStruct(max_batch=64, world_size=1, page_size=16)
    alive = fill_options(
        struct,
        EngineOptions("a/b", device="cpu", world_size=4, expert_layout="expert_parallel"),
    )
    assert struct.struct_size == ctypes.sizeof(abi.OptionsStruct)
    assert (struct.model_dir, struct.device, struct.library_dir) == (b"a/b", b"cpu", None)
    assert (struct.max_batch, struct.page_size, struct.world_size) == (64, 16, 4)
    assert struct.expert_layout == abi.EXPERT_LAYOUTS["expert_parallel"]
    assert alive


def test_options_say_zero_and_false():
    struct = abi.OptionsStruct(prefix_cache=1, num_pages=5)
    fill_options(struct, EngineOptions("a", prefix_cache=False, num_pages=0))
    assert (struct.prefix_cache, struct.num_pages) == (0, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_batch": 2**31}, "max_batch is 2147483648"),
        ({"max_batch": 1.5}, "max_batch is 1.5"),
        ({"expert_layout": "round"}, "expert_layout is 'round'; expected one of"),
        ({"model_dir": "a\0b"}, "model_dir is .*, which contains a zero byte"),
    ],
)
def test_options_that_c_cannot_hold(values, message):
    with pytest.raises(BadInputError, match=message):
        fill_options(abi.OptionsStruct(), EngineOptions(**{"model_dir": "a", **values}))


def test_a_mask_is_passed_where_it_lies():
    mask = np.arange(3, dtype=np.uint32)
    mask.setflags(write=False)
    struct, arrays = filled(Request([1], mask=mask))
    assert struct.mask[:3] == [0, 1, 2]
    assert ctypes.addressof(struct.mask.contents) == mask.ctypes.data
    assert arrays["mask"] is not None
    assert not filled(Request([1]))[0].mask


@pytest.mark.parametrize("vocab_size", [1, 32, 33, 96])
def test_a_mask_has_a_word_for_every_32_tokens(vocab_size):
    words = -(-vocab_size // 32)
    check_mask(None, vocab_size)
    check_mask(np.zeros(words, dtype=np.uint32), vocab_size)
    check_mask(bytes(4 * words), vocab_size)
    for size in (4 * words - 1, 4 * words + 4):
        with pytest.raises(
            BadInputError, match=f"expected {4 * words} contiguous bytes .* got {size} bytes"
        ):
            check_mask(bytes(size), vocab_size)


def test_a_mask_with_gaps_is_refused():
    with pytest.raises(BadInputError, match="got 12 bytes that are not contiguous"):
        check_mask(np.zeros(6, dtype=np.uint32)[::2], 96)


def test_event_of_a_struct():
    struct = abi.EventStruct(
        request_id=5,
        kind=abi.EVENT_TOKEN,
        token_id=7,
        num_logprobs=2,
        message=b"caf\xc3\xa9",
    )
    struct.top_ids[0], struct.top_ids[1] = 7, 8
    (event,) = events_of(np.frombuffer(struct, record_dtype("engine_event")))
    assert (event.kind, event.token_id, event.message) == ("token", 7, "café")
    assert [number for number, _ in event.top_logprobs] == [7, 8]
    assert not event.ends_request


def test_event_of_an_unknown_kind_says_so():
    struct = abi.EventStruct(kind=99, finish_reason=42, num_logprobs=-1)
    (event,) = events_of(np.frombuffer(struct, record_dtype("engine_event")))
    assert (event.kind, event.finish_reason) == ("unknown kind 99", "unknown reason 42")
    assert event.top_logprobs == []


def test_masks_reach_their_structs():
    structs, alive = mask_structs([(7, 3, np.arange(4, dtype=np.uint32)), (8, 1, None)], 128)
    assert [(one.request_id, one.index) for one in structs] == [(7, 3), (8, 1)]
    assert structs[0].words[:4] == [0, 1, 2, 3]
    assert not structs[1].words
    assert len(alive) == 1


def test_masks_leave_nothing_in_cycles():
    masks = [(7, index, np.zeros(4, dtype=np.uint32)) for index in range(50)]
    mask_structs(masks, 128)
    gc.collect()
    mask_structs(masks, 128)
    assert gc.collect() == 0

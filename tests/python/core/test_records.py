"""numpy's structured types against the structs of abi.py, which test_abi.py holds to the header."""

import ctypes

import numpy as np
import pytest

from glm_engine.core import abi
from glm_engine.core.abi import event_records, record_dtype


@pytest.mark.parametrize("name", ["engine_event", "engine_step", "engine_info"])
def test_records_lie_as_the_structs_do(name):
    dtype, struct = record_dtype(name), abi.TYPES[name]
    assert dtype.itemsize == ctypes.sizeof(struct)
    assert list(dtype.fields) == [field for field, *_ in abi.STRUCTS[name]]
    for field, *_ in abi.STRUCTS[name]:
        made, offset = dtype.fields[field]
        place = getattr(struct, field)
        assert (offset, made.itemsize) == (place.offset, place.size)


def test_what_c_writes_is_in_the_records():
    records, pointer = event_records(2)
    pointer[1].request_id = 2**64 - 1
    pointer[1].token_id = -1
    pointer[1].top_ids[3] = 7
    pointer[1].logprob = -0.5
    pointer[1].message = "café".encode()
    one = records[1]
    assert (one["request_id"], one["token_id"], one["top_ids"][3]) == (2**64 - 1, -1, 7)
    assert (one["logprob"], one["message"].decode()) == (-0.5, "café")
    assert records[0] == np.zeros(1, records.dtype)[0]

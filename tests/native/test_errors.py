"""Wrong arguments: a status and a message that says what was expected, what came and where."""

import ctypes

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8, TABLE, Backend, BackendError, Matrix, address
from glm_engine.verify.drawing import Controls, draw
from glm_engine.verify.header import constants, structs
from glm_engine.verify.paging import Heads, Norms, PagedCache, Segment
from tests.native import calls

NAMES = constants()


def fails(status, text):
    return pytest.raises(BackendError, match=f"^status {NAMES[status]}: .*{text}")


def invalid(text):
    return fails("GLM_INVALID_ARGUMENT", text)


def test_unknown_abi_version(backend: Backend):
    table, message = ctypes.c_void_p(), structs()["glm_message"]()
    status = backend.library.glm_backend_open(
        ctypes.c_uint32(99), ctypes.byref(table), ctypes.byref(message)
    )
    assert status == NAMES["GLM_INVALID_ARGUMENT"]
    known = constants()["GLM_BACKEND_ABI_VERSION"]
    assert f"abi_version: expected {known}, got 99" in message.text.decode()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rank": 1}, "rank: expected 0 to 0, got 1"),
        ({"world_size": 2}, "world_size without a group: expected 1, got 2"),
        ({"num_threads": -1}, "num_threads: expected 0 to 4096, got -1"),
    ],
)
def test_device_options(backend, options, text):
    with invalid(text), backend.device(**options):
        pass


def test_struct_sizes_that_are_not_known(device):
    device.info.struct_size = 3
    with invalid(f"struct_size: expected {ctypes.sizeof(device.info)}, got 3"):
        device.check(device.table.device_info(device.handle, address(device.info)))


@pytest.fixture
def checking(device):
    """A device that checks the indexes in its memory."""
    if not device.facts.checks_indexes:
        pytest.skip("this device does not check indexes in device memory")
    return device


def test_token_ids_outside_the_vocabulary(checking):
    placed, _ = calls.table(checking, np.zeros((5, 3)), F32)
    for token in (-1, 5):
        with invalid(rf"embed: token_ids\[1\]: expected 0 to 4, got {token}"):
            op.embed(checking, placed, [0, token])


def test_matrices_and_activations_that_do_not_fit(device):
    table, _ = calls.table(device, np.zeros((5, 3)), BF16)
    with invalid("linear: matrix.role"):
        op.linear(device, table, np.zeros((1, 3)))
    fp8, _ = calls.matrix(device, np.ones((5, 3)), FP8)
    with invalid(r"codes.*: expected a pointer, got null"):
        op.linear(device, fp8, np.zeros((1, 3)))
    plain, _ = calls.matrix(device, np.ones((5, 3)), BF16)
    with invalid(r"plain.*: expected a pointer, got null"):
        op.linear(device, plain, op.Quantised(np.zeros((1, 3), np.uint8), np.ones(1, np.float32)))
    with fails("GLM_NOT_SUPPORTED", "logits"):
        op.logits(device, fp8, np.zeros((1, 3)), [0])


def test_rows_outside_a_matrix(device):
    values = np.zeros((4, 3), np.float32)
    placed = Matrix(device, values, F32)
    fields = {"matrix": placed.pointer, "source": values.ctypes.data, "source_row_stride": 3}
    with invalid("place_rows: row_begin: expected 0 to 2, got 3"):
        device.run("place_rows", row_begin=3, num_rows=2, **fields)
    with invalid("num_rows: expected 0 to 4, got 5"):
        device.run("place_rows", row_begin=0, num_rows=5, **fields)
    unscaled = structs()["glm_matrix"](FP8, 0, 4, 3, placed.struct.data)
    with invalid("row_scale for an FP8 matrix"):
        device.run("place_rows", **{**fields, "matrix": address(unscaled)}, num_rows=1)


def test_unknown_dtypes_and_roles(device):
    with pytest.raises(BackendError):
        device.matrix_bytes(structs()["glm_matrix"](7, 0, 4, 3))
    with pytest.raises(BackendError):
        device.matrix_bytes(structs()["glm_matrix"](F32, TABLE + 1, 4, 3))
    with invalid("source dtype: expected F32"):
        device.run("place_vector", source=1, source_dtype=FP8, count=1, destination=1)


def test_more_choices_than_experts(device):
    placed, _ = calls.matrix(device, np.zeros((4, 3)), F32)
    with invalid("top_k: expected 1 to 4, got 5"):
        op.route(device, placed, np.zeros((1, 3)), np.zeros(4), 5)


def test_slots_and_pages_outside_the_cache(checking):
    cache = PagedCache(checking, Heads(2, 1, 4), 1, 3, 4)
    tables = op.rope_tables(checking, 1e4, 2, 16)
    qkv = np.zeros((1, cache.heads.qkv_width))
    with invalid(r"slots\[0\]: expected -1 to 11, got 12"):
        cache.store(qkv, [0], [12], Norms(None, None), tables, 2)
    query = np.zeros((1, 8))
    with invalid(r"page_table\[0\]: expected 0 to 2, got 3"):
        cache.attend(query, [Segment(1, 1, (3,))])
    with invalid(r"context_length\[0\]: expected 0 to 4, got 5"):
        cache.attend(query, [Segment(5, 1, (0,))])
    with invalid("segment rows"):
        cache.attend(np.zeros((3, 8)), [Segment(2, 3, (0,))])


def test_layers_outside_the_cache(device):
    cache = PagedCache(device, Heads(2, 1, 4), 1, 3, 4)
    tables = op.rope_tables(device, 1e4, 2, 16)
    qkv = np.zeros((1, cache.heads.qkv_width))
    with invalid("layer: expected 0 to 0, got 1"):
        cache.store(qkv, [0], [0], Norms(None, None), tables, 2, layer=1)
    with invalid("layer: expected 0 to 0, got 1"):
        cache.attend(np.zeros((1, 8)), [Segment(1, 1, (0,))], layer=1)


def test_sampling_tables(checking):
    logits = np.zeros((1, 8), np.float32)
    with invalid(r"bias_tokens\[0\]: expected 0 to 7, got 8"):
        draw(checking, logits, [Controls(biases={8: 1.0})])
    with invalid(r"count_row\[0\]: expected -1 to 0, got 1"):
        draw(checking, logits, [Controls()], counts=np.zeros((1, 8)), count_row=1)
    with invalid(r"num_logprobs\[0\]: expected -1 to 20, got 21"):
        draw(checking, logits, [Controls()], num_logprobs=21)


def test_pages_outside_the_pool(device):
    cache = PagedCache(device, Heads(2, 1, 4), 1, 3, 4)
    page = np.array([3], np.int32)
    with invalid(r"source_pages\[0\]: expected 0 to 2, got 3"):
        device.run(
            "copy_pages",
            cache=cache.pointer,
            num_pages=1,
            source_pages=page.ctypes.data,
            destination_pages=page.ctypes.data,
        )


def test_a_cache_of_another_type_on_the_cpu(backend, device):
    if backend.kind != "cpu":
        pytest.skip("only the CPU device holds its cache in float32 alone")
    with pytest.raises(BackendError) as raised:
        device.page_bytes(structs()["glm_kv_cache"](BF16, 1, 1, 4, 1, 4))
    assert raised.value.status == NAMES["GLM_NOT_SUPPORTED"]


def test_graphs_where_they_are_not_supported(device):
    if device.info.supports_graphs:
        pytest.skip("this device captures graphs")
    with fails("GLM_NOT_SUPPORTED", "graph"):
        device.check(device.table.graph_begin(device.handle))


def test_more_memory_than_there_is(device):
    with fails("GLM_OUT_OF_MEMORY", "allocate"):
        device.allocate(1 << 60)


def test_negative_numbers_of_tokens(device):
    placed, _ = calls.matrix(device, np.zeros((4, 3)), BF16)
    with invalid("linear: .*num_tokens: expected 0 to 2147483647, got -1"):
        device.run("linear", num_tokens=-1, matrix=placed.pointer)


def test_no_row_a_sequence(device):
    segments = structs()["glm_segments"](
        num_segments=1,
        num_decode_segments=1,
        query_begin=device.place(np.array([0, 1], np.int32)),
        context_length=device.place(np.ones(1, np.int32)),
        table_row=device.place(np.zeros(1, np.int32)),
        page_table=device.place(np.zeros(1, np.int32)),
        page_table_stride=1,
        num_table_rows=1,
    )
    cache = PagedCache(device, Heads(1, 1, 8))
    with invalid("attention: rows_per_sequence: expected 1 to 2147483647, got 0"):
        device.run(
            "attention",
            num_tokens=1,
            segments=segments,
            num_heads=1,
            query=device.empty(64),
            cache=cache.pointer,
            output=device.empty(64),
        )


@pytest.mark.parametrize("part", [-1, 3])
def test_parts_of_unknown_sums(device, part):
    placed, _ = calls.matrix(device, np.zeros((4, 3)), BF16)
    text = f"part_of_sum: expected 0 to 2, got {part}"
    with invalid(f"linear: {text}"):
        device.run("linear", num_tokens=1, matrix=placed.pointer, part_of_sum=part)
    with invalid(f"experts: {text}"):
        device.run("experts", num_tokens=1, top_k=1, part_of_sum=part)


def test_an_error_leaves_the_device_usable(device):
    placed, _ = calls.matrix(device, np.eye(3), BF16)
    with invalid("plain"):
        device.run("linear", num_tokens=1, matrix=placed.pointer, output=device.empty(64))
    np.testing.assert_array_equal(op.linear(device, placed, np.ones((1, 3))), np.ones((1, 3)))


def test_no_columns_is_refused(device):
    struct = structs()["glm_matrix"](BF16, 0, 4, 0, device.empty(1).value)
    with invalid("matrix.columns: expected 1 to"):
        device.run("linear", num_tokens=1, matrix=address(struct))

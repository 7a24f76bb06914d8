"""Every collective of libncclwrap.so over ranks that have a GPU each."""

import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16, encode_bf16
from glm_engine.verify.device import BF16, F32
from tests import shapes
from tests.devices import device_kind, num_devices
from tools.bindings.wrappers import Memory, on_nccl_ranks, wrapper

POISON = 0xA5
BLOCK_BYTES = (1, 13, 4099)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=[2, 4, 8])
def world_size(request) -> int:
    if device_kind() != "cuda":
        pytest.skip("NCCL exchanges between GPUs: --device-kind cuda runs it")
    try:
        wrapper("ncclwrap")
    except OSError as error:
        pytest.skip(f"libncclwrap.so cannot be opened here: {error}")
    if num_devices("cuda") < request.param:
        pytest.skip(f"expected {request.param} GPUs, got {num_devices('cuda')}")
    return request.param


def drawn(world_size: int, *shape: int) -> np.ndarray:
    """[world_size, *shape] random bytes."""
    random = shapes.generator("NCCL's bytes", world_size, *shape)
    return random.integers(0, 256, (world_size, *shape), np.uint8)


def collected(call: str, given: np.ndarray, shape, *size) -> list[np.ndarray]:
    """What `call` leaves on each rank in poisoned memory of that shape and of given's type."""
    poison = np.full(shape, POISON, np.uint8).view(given.dtype)

    def work(comm, rank):
        with Memory(given[rank]) as mine, Memory(poison) as output:
            wrapper("ncclwrap").call(call, comm, mine.pointer, output.pointer, *size, None)
            return output.get()

    return on_nccl_ranks(len(given), work)


@pytest.mark.parametrize("num_bytes", BLOCK_BYTES)
def test_a_broadcast_gives_every_rank_the_roots_bytes(world_size, num_bytes):
    given, root = drawn(world_size, num_bytes), world_size - 1

    def work(comm, rank):
        with Memory(given[rank]) as data:
            call = ("cwNcclBroadcast", comm, data.pointer, num_bytes, root, None)
            wrapper("ncclwrap").call(*call)
            return data.get()

    for actual in on_nccl_ranks(world_size, work):
        np.testing.assert_array_equal(actual, given[root])


@pytest.mark.parametrize("num_bytes", BLOCK_BYTES)
def test_a_gather_joins_the_ranks_bytes(world_size, num_bytes):
    given = drawn(world_size, num_bytes)
    for actual in collected("cwNcclAllGather", given, given.shape, num_bytes):
        np.testing.assert_array_equal(actual, given)


@pytest.mark.parametrize("num_bytes", BLOCK_BYTES)
def test_all_to_all_gives_each_rank_its_block_of_all(world_size, num_bytes):
    given = drawn(world_size, world_size, num_bytes)
    found = collected("cwNcclAllToAll", given, given.shape[1:], num_bytes)
    for rank, actual in enumerate(found):
        np.testing.assert_array_equal(actual, given[:, rank])


@pytest.mark.parametrize(("dtype", "limit"), [(F32, 1e-6), (BF16, 2e-2)], ids=["f32", "bf16"])
@pytest.mark.parametrize("count", [1, 13, 4099])
def test_a_sum_is_that_of_all_ranks(world_size, count, dtype, limit):
    """BF16: each of the additions rounds, in an order that is NCCL's own."""
    random = shapes.generator("NCCL's sums", world_size, count)
    exact = random.uniform(0.5, 1.0, (world_size, count)).astype(np.float32)
    given = encode_bf16(exact) if dtype == BF16 else exact
    exact = decode_bf16(given) if dtype == BF16 else exact
    for raw in collected("cwNcclAllReduce", given, (given[0].nbytes,), count, dtype):
        actual = decode_bf16(raw) if dtype == BF16 else raw
        np.testing.assert_allclose(actual, exact.astype(np.float64).sum(axis=0), rtol=limit)

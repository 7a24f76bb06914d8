"""libcudawrap, libcublaswrap and libncclwrap on a GPU."""

import ctypes

import numpy as np
import pytest

from glm_engine.core.float8 import decode_bf16, encode_bf16
from glm_engine.verify.device import BF16, F32, FP8
from tests import shapes
from tests.reference import fp8
from tests.reference.compare import relative_l2
from tools.bindings.wrappers import CallError, GemmArgs, Memory, NcclId, Wrapper, wrapper

OUT_OF_MEMORY, INVALID = 3, 1


def loaded(request, name: str) -> Wrapper:
    if request.config.getoption("--device-kind") != "cuda":
        pytest.skip("the wrappers call CUDA: --device-kind cuda runs them")
    try:
        return wrapper(name)
    except OSError as error:
        pytest.skip(f"lib{name}.so cannot be opened here: {error}")


@pytest.fixture
def cuda(request):
    opened = loaded(request, "cudawrap")
    opened.call("cwCudaSetDevice", 0)
    return opened


@pytest.fixture
def cublas(request):
    return loaded(request, "cublaswrap")


@pytest.fixture
def nccl(request):
    return loaded(request, "ncclwrap")


def free_bytes(cuda) -> int:
    free, total = ctypes.c_int64(), ctypes.c_int64()
    cuda.call("cwCudaMemInfo", ctypes.byref(free), ctypes.byref(total))
    assert 0 < free.value <= total.value
    return free.value


@pytest.mark.parametrize("size", [1, 4099, 64 << 20])
def test_bytes_come_back_and_memory_is_given_back(cuda, size):
    data = shapes.generator("wrapped", size).integers(0, 256, size, np.uint8)
    cuda.call("cwCudaDeviceSync")
    before = free_bytes(cuda)
    stream = cuda.made("cwCudaStreamCreate")
    host = cuda.made("cwCudaMallocHost", size)
    first, second = (cuda.made("cwCudaMalloc", size) for _ in range(2))
    cuda.call("cwCudaMemset", second, 0xA5, size, stream)
    cuda.call("cwCudaMemcpyH2D", first, data.ctypes.data, size, stream)
    cuda.call("cwCudaMemcpyD2D", second, first, size, stream)
    cuda.call("cwCudaMemcpyD2H", host, second, size, stream)
    cuda.call("cwCudaStreamSync", stream)
    back = np.ctypeslib.as_array(ctypes.cast(host, ctypes.POINTER(ctypes.c_uint8)), (size,))
    np.testing.assert_array_equal(back, data)
    for memory in (first, second):
        cuda.call("cwCudaFree", memory)
    cuda.call("cwCudaFreeHost", host)
    cuda.call("cwCudaStreamDestroy", stream)
    assert free_bytes(cuda) == before


def test_events_measure(cuda):
    begin, end = (cuda.made("cwCudaEventCreate") for _ in range(2))
    stream, elapsed = cuda.made("cwCudaStreamCreate"), ctypes.c_float(-1)
    has_passed = ctypes.c_int32(-1)
    cuda.call("cwCudaEventRecord", begin, stream)
    cuda.call("cwCudaEventRecord", end, stream)
    cuda.call("cwCudaEventSync", end)
    cuda.call("cwCudaEventQuery", end, ctypes.byref(has_passed))
    assert has_passed.value == 1
    cuda.call("cwCudaEventElapsed", begin, end, ctypes.byref(elapsed))
    assert 0 <= elapsed.value < 1000
    for event in (begin, end):
        cuda.call("cwCudaEventDestroy", event)
    cuda.call("cwCudaStreamDestroy", stream)


def test_failures_are_logged_and_returned(cuda, capfd):
    with pytest.raises(CallError, match="cwCudaMalloc: status 2 cudaErrorMemoryAll") as raised:
        cuda.made("cwCudaMalloc", 1 << 60)
    assert raised.value.status == OUT_OF_MEMORY
    with pytest.raises(CallError, match="cwCudaSetDevice: status 101 cudaErrorInvalidDevice"):
        cuda.call("cwCudaSetDevice", 4096)
    with pytest.raises(CallError, match=r"cwCudaMalloc: .*bytes is negative") as raised:
        cuda.made("cwCudaMalloc", -1)
    assert raised.value.status == INVALID
    logged = capfd.readouterr().err
    assert "cwCudaMalloc: status 2" in logged
    assert "cwCudaSetDevice: status 101" in logged
    cuda.call("cwCudaSetDevice", 0)
    cuda.call("cwCudaDeviceSync")


def stored(values: np.ndarray, dtype: int):
    """(array as the product takes it, the float64 values that it stands for)."""
    if dtype == FP8:
        codes = fp8.encode(values)
        return codes, fp8.ALL_VALUES[codes].astype(np.float64)
    if dtype == BF16:
        bits = encode_bf16(values)
        return bits, decode_bf16(bits).astype(np.float64)
    return values, values.astype(np.float64)


def product(cublas, left, right, dtype, output, scales=(None, None)):
    """left [m, k] times right [n, k] transposed."""
    handle = cublas.made("cwCublasLtCreate")
    scratch = np.zeros(32 << 20, np.uint8)
    with Memory(left) as a, Memory(right) as b, Memory(output) as d, Memory(scratch) as workspace:
        arguments = GemmArgs(
            ctypes.sizeof(GemmArgs),
            len(left),
            len(right),
            left.shape[1],
            dtype,
            F32 if output.dtype == np.float32 else BF16,
            a.pointer,
            b.pointer,
            *scales,
            d.pointer,
            workspace.pointer,
            32 << 20,
        )
        cublas.call("cwCublasLtGemm", handle, ctypes.byref(arguments))
        result = d.get()
    cublas.call("cwCublasLtDestroy", handle)
    return result if result.dtype == np.float32 else decode_bf16(result)


@pytest.mark.parametrize("dtype", [F32, BF16, FP8], ids=["f32", "bf16", "fp8"])
@pytest.mark.parametrize("shape", [(16, 16, 16), (48, 80, 272), (256, 512, 1024)], ids=str)
def test_a_product_equals_that_of_numpy(cublas, dtype, shape):
    rows, columns, depth = shape
    rng = shapes.generator("gemm", *shape)
    (left, exact_left), (right, exact_right) = (
        stored(rng.standard_normal((count, depth)).astype(np.float32), dtype)
        for count in (rows, columns)
    )
    poison = np.full((rows, columns), np.nan, np.float32)
    output = encode_bf16(poison) if dtype == FP8 else poison
    actual = product(cublas, left, right, dtype, output)
    limit = {F32: 1e-3, BF16: 1e-5, FP8: 5e-3}[dtype]
    assert relative_l2(actual, exact_left @ exact_right.T) <= limit


def test_wrong_products_are_refused(cublas):
    handle = cublas.made("cwCublasLtCreate")
    arguments = GemmArgs(ctypes.sizeof(GemmArgs), 0, 16, 16)
    with pytest.raises(CallError, match=r"cwCublasLtGemm: .*expected 1 or more"):
        cublas.call("cwCublasLtGemm", handle, ctypes.byref(arguments))
    arguments.struct_size = 3
    with pytest.raises(CallError, match="struct_size"):
        cublas.call("cwCublasLtGemm", handle, ctypes.byref(arguments))
    cublas.call("cwCublasLtDestroy", handle)


@pytest.fixture
def lone_rank(nccl):
    identity = NcclId()
    nccl.call("cwNcclGetUniqueId", ctypes.byref(identity))
    comm = nccl.made("cwNcclCommInitRank", 1, ctypes.byref(identity), 0)
    yield comm
    nccl.call("cwNcclCommDestroy", comm)


def test_collectives_of_one_rank_copy(nccl, lone_rank):
    values = shapes.generator("nccl").standard_normal(4099).astype(np.float32)
    for call, size in (
        ("cwNcclAllReduce", (values.size, F32)),
        ("cwNcclAllGather", (values.nbytes,)),
        ("cwNcclAllToAll", (values.nbytes,)),
    ):
        with Memory(values) as given, Memory(np.full_like(values, np.nan)) as output:
            nccl.call(call, lone_rank, given.pointer, output.pointer, *size, None)
            np.testing.assert_array_equal(output.get(), values)


def test_wrong_collectives_are_refused(nccl, lone_rank):
    with pytest.raises(CallError, match=r"cwNcclAllReduce: .*dtype: expected F32"):
        nccl.call("cwNcclAllReduce", lone_rank, None, None, 1, FP8, None)
    with pytest.raises(CallError, match="id is null"):
        nccl.made("cwNcclCommInitRank", 1, None, 0)

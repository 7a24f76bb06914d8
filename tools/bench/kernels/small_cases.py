"""Operations beside the layers: token ids, counts, pages, a collective of one rank."""

import ctypes
from collections.abc import Iterable

import torch

from glm_engine.verify.device import BF16, F32
from tools.bench.kernels import library
from tools.bench.kernels.case import COPY, HOST, HOST_COPY, LIBRARY, Case, Library
from tools.bench.kernels.device import KernelDevice
from tools.bench.kernels.models import PAGE_SIZE, Model
from tools.bindings.wrappers import NcclId, wrapper

NUM_LAYERS = 8
NUM_PAGES = 256
STEP_ZEROS = (
    "source_rows",
    "row_offset",
    "token_ids",
    "positions",
    "slots",
    "context_length",
    "position",
)


def begin_step(device: KernelDevice, num_rows: int) -> Case:
    def integers(value: int, count: int = num_rows) -> torch.Tensor:
        return torch.full((count,), value, dtype=torch.int32, device="cuda")

    order = torch.arange(num_rows, dtype=torch.int32, device="cuda")
    call = device.call(
        "begin_step",
        num_rows=num_rows,
        num_table_rows=num_rows,
        page_size=PAGE_SIZE,
        page_table_stride=1,
        page_table=order,
        table_row=order,
        position_limit=integers(PAGE_SIZE),
        states=integers(1, 4 * num_rows),
        **{name: integers(0) for name in STEP_ZEROS},
    )
    return Case("begin_step", "", num_rows, 48 * num_rows, [call], 0, COPY)


def count_tokens(device: KernelDevice, model: Model, num_tokens: int) -> Case:
    vocab = model.vocab_size
    counts = torch.zeros(vocab, dtype=torch.int32, device="cuda")
    ids = torch.randint(0, vocab, (num_tokens,), dtype=torch.int32, device="cuda")
    call = device.call(
        "count_tokens",
        counts=counts,
        vocab_size=vocab,
        count_row=0,
        num_tokens=num_tokens,
        token_ids=ids,
        from_prompt=0,
        reset=1,
    )
    index, ones = ids.to(torch.int64), torch.ones_like(ids)
    peer = Library("zero_, scatter_add_", [lambda: counts.zero_().scatter_add_(0, index, ones)])
    size = 4 * vocab + 12 * num_tokens
    return Case("count_tokens", f"reset, {vocab}", num_tokens, size, [call], 0, COPY, peer)


def page_list(pages: Iterable[int]) -> ctypes.Array[ctypes.c_int32]:
    values = [int(page) for page in pages]
    return (ctypes.c_int32 * len(values))(*values)


def page_shape(model: Model) -> str:
    return f"{NUM_PAGES} pages, {NUM_LAYERS} layers, {model.num_kv_heads} heads"


def copy_pages(device: KernelDevice, model: Model) -> Case:
    cache, memory = device.kv_cache(model, 2 * NUM_PAGES, num_layers=NUM_LAYERS)
    order = torch.randperm(2 * NUM_PAGES).tolist()
    call = device.call(
        "copy_pages",
        cache=cache,
        num_pages=NUM_PAGES,
        source_pages=page_list(order[:NUM_PAGES]),
        destination_pages=page_list(order[NUM_PAGES:]),
    )
    halves = memory.view(2, -1)
    peer = Library("copy_", [library.copied(halves[0], halves[1])])
    shape, size = page_shape(model), 2 * halves[0].nbytes
    return Case("copy_pages", shape, 0, size, [call], 0, COPY, peer, [memory])


def transfer_pages(device: KernelDevice, model: Model, operation: str) -> Case:
    """save_pages or restore_pages: they have finished when they return."""
    cache, memory = device.kv_cache(model, NUM_PAGES, num_layers=NUM_LAYERS)
    host = torch.zeros(memory.nbytes, dtype=torch.uint8, pin_memory=True)
    pages = page_list(torch.randperm(NUM_PAGES))
    call = device.call(operation, cache=cache, num_pages=NUM_PAGES, pages=pages, host_data=host)
    ends = (host, memory.view(torch.uint8))
    beside = library.copied(*(ends if operation == "save_pages" else ends[::-1]))
    given = (page_shape(model), 0, memory.nbytes, [call], 0, HOST_COPY)
    peer = Library("copy_ with pinned memory", [beside])
    return Case(operation, *given, peer, [memory, host], HOST)


class LoneRank:
    """A communicator of one rank through libncclwrap.so, destroyed with the case."""

    def __init__(self) -> None:
        self.nccl, identity = wrapper("ncclwrap"), NcclId()
        self.nccl.call("cwNcclGetUniqueId", ctypes.byref(identity))
        self.comm = self.nccl.made("cwNcclCommInitRank", 1, ctypes.byref(identity), 0)

    def __del__(self) -> None:
        if hasattr(self, "comm"):
            self.nccl.library.cwNcclCommDestroy(self.comm)

    def all_reduce(self, given: torch.Tensor, output: torch.Tensor) -> None:
        """On the current stream of PyTorch."""
        dtype = F32 if given.dtype == torch.float32 else BF16
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (given.data_ptr(), output.data_ptr())
        self.nccl.call("cwNcclAllReduce", self.comm, *pointers, given.numel(), dtype, stream)


def all_reduce(model: Model, num_tokens: int) -> Case:
    """NCCL alone: with one rank the device's own has nothing to add."""
    rank, width = LoneRank(), model.hidden_size
    given = library.bf16(num_tokens, width)
    output = torch.empty_like(given)
    peer = Library("copy_", [library.copied(output, given)])
    call = [lambda: rank.all_reduce(given, output)]
    shape, size = f"NCCL, one rank, {width}", 2 * given.nbytes
    keep, name = [rank, given, output], "all_reduce"
    return Case(name, shape, num_tokens, size, call, 0, COPY, peer, keep, LIBRARY)

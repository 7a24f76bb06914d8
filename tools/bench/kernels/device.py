"""The CUDA device of build/, its operations called with tensors, and timed."""

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from glm_engine.verify.device import ARGUMENTS, BF16, FP8, Backend, Device, address
from glm_engine.verify.header import structs
from tools.bench.kernels import library, timing
from tools.bench.kernels.case import Call
from tools.bench.kernels.models import HEAD_DIM, MODELS, PAGE_SIZE, PREFILL_TOKENS, TOP_K, Model

DEVIATION = 0.02
ELEMENT_BYTES = {BF16: 2, FP8: 1}
WORKSPACE_SIZES = (
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "num_local_experts",
    "vocab_size",
)
Matrix = tuple[ctypes.Structure, tuple[torch.Tensor, torch.Tensor]]
"""A glm_matrix, and the codes or values and the scales that it points to."""
BY_ADDRESS = ("glm_matrix", "glm_kv_cache")


def pointer(value: Any) -> Any:
    """Tensors, and structs and lists that arguments point to, as addresses; all else as it is."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    is_pointed_to = isinstance(value, ctypes.Array) or type(value).__name__ in BY_ADDRESS
    return address(value) if is_pointed_to else value


def struct(name: str, **fields: Any) -> ctypes.Structure:
    """A struct of the header; `keep` of the caller must hold what the fields point to."""
    return structs()[f"glm_{name}"](**{key: pointer(value) for key, value in fields.items()})


class KernelDevice(Device):
    """A device whose workspace covers the shapes of every model."""

    def __init__(self, kind: str = "cuda"):
        super().__init__(Backend(kind), num_threads=1)

    def set_workspace(self) -> None:
        shape = self.workspace_shape()
        size = self.bytes_of("workspace_bytes", shape)
        memory = self.allocate(max(size, 1))
        self.check(self.table.set_workspace(self.handle, address(shape), memory, size))
        self.num_kept_blocks = len(self.blocks)

    @staticmethod
    def workspace_shape() -> ctypes.Structure:
        models = MODELS.values()
        largest = {name: max(getattr(model, name) for model in models) for name in WORKSPACE_SIZES}
        kind = structs()["glm_workspace_shape"]
        return kind(
            struct_size=ctypes.sizeof(kind),
            max_step_tokens=PREFILL_TOKENS,
            max_decode_rows=256,
            rows_per_sequence=2,
            max_context=PREFILL_TOKENS,
            max_logit_rows=256,
            head_dim=HEAD_DIM,
            top_k=TOP_K,
            **largest,
        )

    def is_lost(self) -> bool:
        """Whether the GPU answers no more."""
        try:
            torch.cuda.synchronize()
            self.check(self.table.synchronise(self.handle))
        except RuntimeError:
            return True
        return False

    def call(self, operation: str, **fields: Any) -> Callable[[], None]:
        """The operation with these arguments as a function without any."""
        arguments = struct(f"{ARGUMENTS.get(operation, operation)}_args", **fields)
        function = getattr(self.table, operation)

        def run(_keep: object = fields) -> None:
            self.check(function(self.handle, address(arguments)))

        return run

    def matrix(self, dtype: int, role: int, rows: int, columns: int, seed: int = 1) -> Matrix:
        """(glm_matrix of random values, the tensors that it lives in)."""
        made = structs()["glm_matrix"](dtype, role, rows, columns)
        data = torch.empty(self.matrix_bytes(made), dtype=torch.uint8, device="cuda")
        scale = torch.empty(rows if dtype == FP8 else 0, device="cuda")
        made.data, made.row_scale = data.data_ptr(), scale.data_ptr() or None
        self.fill(made, seed)
        return made, (data, scale)

    def fill(self, made: ctypes.Structure, seed: int) -> None:
        """Random values, after what PyTorch still does with the memory."""
        torch.cuda.synchronize()
        self.run("place_random", matrix=address(made), seed=seed, standard_deviation=DEVIATION)
        self.check(self.table.synchronise(self.handle))

    def kv_cache(
        self, model: Model, num_pages: int, dtype: int = BF16, num_layers: int = 1
    ) -> tuple[ctypes.Structure, torch.Tensor]:
        """(glm_kv_cache of random values, its memory)."""
        shape = (dtype, num_layers, num_pages, PAGE_SIZE, model.num_kv_heads, HEAD_DIM)
        cache = structs()["glm_kv_cache"](*shape)
        num_values = num_pages * self.page_bytes(cache) // ELEMENT_BYTES[dtype]
        memory = library.fp8(num_values) if dtype == FP8 else library.bf16(num_values)
        cache.data = memory.data_ptr()
        return cache, memory

    def microseconds(self, calls: Sequence[Call]) -> float:
        """Median time of a call in a graph that makes each call at least once."""
        torch.cuda.synchronize()
        calls[0]()
        first_us = 1e3 * self.elapsed_ms(calls[0])
        repeated = list(calls) * timing.num_repeats(len(calls), first_us)
        graph = self.capture(repeated)
        spent = timing.median_us(lambda: self.elapsed_ms(lambda: self.replay(graph)), len(repeated))
        self.free_graph(graph)
        return spent

    def waited_microseconds(self, calls: Sequence[Call]) -> float:
        """Median time of a call that has finished when it returns, by the host's clock."""
        torch.cuda.synchronize()

        def replay() -> float:
            begin = time.perf_counter()
            for call in calls:
                call()
            self.check(self.table.synchronise(self.handle))
            return 1e3 * (time.perf_counter() - begin)

        return timing.median_us(replay, len(calls))

    def read_rate(self, num_bytes: int) -> float:
        """Bytes a second of a plain read."""
        memory = torch.randint(0, 1 << 62, (num_bytes // 8,), device="cuda")
        rate = ctypes.c_double()
        torch.cuda.synchronize()
        given = (memory.data_ptr(), 8 * len(memory), address(rate))
        self.check(self.table.measure_read(self.handle, *given))
        return rate.value

"""The CUDA device of build/, its operations called with tensors, and timed."""

import ctypes
import statistics
from collections.abc import Callable, Sequence

import torch

from tests.native.backend import FP8, Backend, Device, address, structs
from tools.bench.kernels.models import MODELS, PREFILL_TOKENS, TOP_K

NUM_REPLAYS = 11
MIN_CALLS = 24
DEVIATION = 0.02


WORKSPACE_SIZES = (
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "num_local_experts",
    "vocab_size",
)
BY_ADDRESS = ("glm_matrix", "glm_kv_cache")


def pointer(value):
    """Tensors, and structs that arguments point to, as addresses; all else as it is."""
    if isinstance(value, torch.Tensor):
        return value.data_ptr()
    return address(value) if type(value).__name__ in BY_ADDRESS else value


def struct(name: str, **fields):
    """A struct of the header; `keep` of the caller must hold what the fields point to."""
    return structs()[f"glm_{name}"](**{key: pointer(value) for key, value in fields.items()})


class KernelDevice(Device):
    """A device whose workspace covers the shapes of every model."""

    def __init__(self, kind: str = "cuda"):
        super().__init__(Backend(kind), num_threads=1)

    def set_workspace(self) -> None:
        shape, size = self.workspace_shape(), ctypes.c_int64()
        self.check(self.table.workspace_bytes(address(shape), address(size)))
        self.workspace = self.allocate(max(size.value, 1))
        arguments = (address(shape), self.workspace, size.value)
        self.check(self.table.set_workspace(self.handle, *arguments))
        self.num_kept_blocks = len(self.blocks)

    @staticmethod
    def workspace_shape():
        models = MODELS.values()
        largest = {name: max(getattr(model, name) for model in models) for name in WORKSPACE_SIZES}
        kind = structs()["glm_workspace_shape"]
        return kind(
            struct_size=ctypes.sizeof(kind),
            max_step_tokens=PREFILL_TOKENS,
            max_sequences=256,
            max_context=PREFILL_TOKENS,
            max_logit_rows=256,
            head_dim=128,
            top_k=TOP_K,
            **largest,
        )

    def call(self, operation: str, **fields) -> Callable[[], None]:
        """The operation with these arguments as a function without any."""
        arguments = struct(f"{operation}_args", **fields)
        function = getattr(self.table, operation)

        def run() -> None:
            self.check(function(self.handle, address(arguments)))

        run.keep = fields
        return run

    def matrix(self, dtype: int, role: int, rows: int, columns: int, seed: int = 1):
        """(glm_matrix of random values, the tensors that it lives in)."""
        made = structs()["glm_matrix"](dtype, role, rows, columns)
        data = torch.empty(self.matrix_bytes(made), dtype=torch.uint8, device="cuda")
        scale = torch.empty(rows if dtype == FP8 else 0, device="cuda")
        made.data, made.row_scale = data.data_ptr(), scale.data_ptr() or None
        self.fill(made, seed)
        return made, (data, scale)

    def fill(self, made, seed: int) -> None:
        self.run("place_random", matrix=address(made), seed=seed, standard_deviation=DEVIATION)
        self.check(self.table.synchronise(self.handle))

    def capture(self, calls: Sequence[Callable[[], None]]) -> ctypes.c_void_p:
        graph = ctypes.c_void_p()
        self.check(self.table.graph_begin(self.handle))
        for call in calls:
            call()
        self.check(self.table.graph_end(self.handle, address(graph)))
        return graph

    def elapsed_ms(self, graph: ctypes.c_void_p) -> float:
        events = [ctypes.c_void_p() for _ in range(2)]
        for event in events:
            self.check(self.table.event_create(self.handle, address(event)))
        self.check(self.table.event_record(self.handle, events[0]))
        self.check(self.table.graph_replay(self.handle, graph))
        self.check(self.table.event_record(self.handle, events[1]))
        self.check(self.table.event_synchronise(self.handle, events[1]))
        milliseconds = ctypes.c_float()
        elapsed = (*events, address(milliseconds))
        self.check(self.table.event_elapsed(self.handle, *elapsed))
        for event in events:
            self.check(self.table.event_free(self.handle, event))
        return milliseconds.value

    def microseconds(self, calls: Sequence[Callable[[], None]]) -> float:
        """Median time of a call in a graph that makes each call at least once."""
        torch.cuda.synchronize()
        calls[0]()
        self.check(self.table.synchronise(self.handle))
        repeated = list(calls) * -(-MIN_CALLS // len(calls))
        graph = self.capture(repeated)
        times = [self.elapsed_ms(graph) for _ in range(NUM_REPLAYS)][1:]
        self.check(self.table.graph_free(self.handle, graph))
        return 1e3 * statistics.median(times) / len(repeated)

    def read_rate(self, num_bytes: int) -> float:
        """Bytes a second of a plain read."""
        memory = torch.randint(0, 255, (num_bytes,), dtype=torch.uint8, device="cuda")
        rate = ctypes.c_double()
        torch.cuda.synchronize()
        given = (memory.data_ptr(), num_bytes, address(rate))
        self.check(self.table.measure_read(self.handle, *given))
        return rate.value

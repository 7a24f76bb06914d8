"""The engine as a Python object: handles, statuses and texts of engine.so.

Every call releases the interpreter's lock while C runs. Errors of the engine become
`EngineError` with the engine's own message.
"""

import contextlib
import ctypes
import json
import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from glm_engine.core import abi
from glm_engine.core.abi import StructPointer, event_records
from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.core.layout import StrPath
from glm_engine.core.libraries import load_engine_library, open_nvrtc
from glm_engine.core.reports import (
    ANY_GPU,
    EngineInfo,
    FoundGpus,
    Inspection,
    Plan,
    Profile,
    ShowProgress,
    Step,
)
from glm_engine.core.requests import (
    LOGITS,
    EngineOptions,
    Event,
    Request,
    Sampling,
    ThoughtLimit,
    TokenMask,
    check_logits_buffers,
    check_mask,
    checked_number,
    events_of,
    fill_options,
    fill_request,
    int32_array,
    mask_structs,
    pointer_to,
)

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
__all__ = [
    "Engine",
    "EngineOptions",
    "Event",
    "Request",
    "Sampling",
    "State",
    "ThoughtLimit",
    "find_gpus",
    "inspect_checkpoint",
    "plan",
]

POLL_CAPACITY = 1024
SIZE_FIELDS: tuple[Literal["max_seq_from", "max_batch_from"], ...] = (
    "max_seq_from",
    "max_batch_from",
)
NO_PROGRESS = abi.ProgressFunction()


def call(library: ctypes.CDLL, operation: str, *arguments: object) -> None:
    """Call a function that ends in a message; any status but GLM_OK raises."""
    message = abi.Message()
    status = getattr(library, operation)(*arguments, ctypes.byref(message))
    if status != Status.GLM_OK:
        raise EngineError(operation, status, message.text.decode("utf-8", "replace"))


def call_bare(library: ctypes.CDLL, operation: str, *arguments: object) -> None:
    """Call a function that leaves no message."""
    status = getattr(library, operation)(*arguments)
    if status != Status.GLM_OK:
        raise EngineError(operation, status, "")


def options_struct(library: ctypes.CDLL, options: EngineOptions) -> tuple[ctypes.Structure, object]:
    """Return the struct, and what must stay alive while the engine reads it."""
    struct = abi.OptionsStruct()
    library.engine_default_options(ctypes.byref(struct))
    texts = fill_options(struct, options)
    callback = progress_callback(options.progress)
    struct.progress = callback
    return struct, (texts, callback)


def progress_callback(progress: ShowProgress | None) -> object:
    if progress is None:
        return NO_PROGRESS

    def forward(_context: object, bytes_done: int, bytes_total: int, stage: bytes | None) -> None:
        progress(bytes_done, bytes_total, (stage or b"").decode("utf-8", "replace"))

    return abi.ProgressFunction(forward)


def json_text(library: ctypes.CDLL, operation: str, *arguments: object) -> Any:
    """Call a function that gives an `engine_text` and return its JSON, parsed."""
    text = abi.TextPointer()
    call(library, operation, *arguments, ctypes.byref(text))
    try:
        size = library.engine_text_size(text)
        content = ctypes.string_at(library.engine_text_data(text), size)
    finally:
        call_bare(library, "engine_text_free", text)
    return json.loads(content)


def inspect_checkpoint(model_dir: StrPath) -> Inspection:
    """Return what a checkpoint holds and its problems, without loading a weight."""
    found: Inspection = json_text(load_engine_library(), "engine_inspect", os.fsencode(model_dir))
    return found


def find_gpus() -> FoundGpus:
    """Return what the engine finds: `num_gpus`, the path of the `driver`, the `device` of auto.

    An NVIDIA driver that is here and does not work is an EngineError.
    """
    found: FoundGpus = json_text(load_engine_library(), "engine_find_gpus")
    return found


def library_for(device: str) -> ctypes.CDLL:
    """Return the engine's library, with NVRTC loaded where this device compiles with it."""
    library = load_engine_library()
    with contextlib.suppress(EngineError):
        if device == ANY_GPU or (device == "auto" and find_gpus()["device"] == ANY_GPU):
            open_nvrtc()
    return library


def plan(options: EngineOptions) -> Plan:
    """Return what would fit with these options, without allocating anything."""
    library = library_for(options.device)
    struct, alive = options_struct(library, options)
    planned: Plan = json_text(library, "engine_plan", ctypes.byref(struct))
    del alive
    return planned


class State:
    """A sequence of the synchronous face, with the pages that it holds."""

    def __init__(self, engine: "Engine", pointer: StructPointer) -> None:
        self.engine = engine
        self.pointer: StructPointer | None = pointer

    @property
    def handle(self) -> StructPointer:
        if not self.pointer:
            raise BadInputError("the state is closed")
        return self.pointer

    def close(self) -> None:
        if self.pointer:
            call_bare(self.engine.library, "free_request_state", self.engine.pointer, self.pointer)
            self.engine.states.discard(self)
            self.pointer = None


class Engine:
    """An engine with its weights loaded; close it, or use it in a `with` block.

    A call of one that is closed, or with a number that C's type cannot hold, is BadInputError.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.pointer: StructPointer | None = None
        self.states: set[State] = set()
        self.buffers: dict[int, list[object]] = {}
        self.events_lock = threading.Lock()
        self.library = library_for(options.device)
        struct, self.alive = options_struct(self.library, options)
        pointer = abi.EnginePointer()
        call(self.library, "init_engine_with", ctypes.byref(struct), ctypes.byref(pointer))
        self.pointer = pointer
        self.events, self.events_pointer = event_records(POLL_CAPACITY)
        self.steps = (abi.StepStruct * POLL_CAPACITY)()
        info = self.info()
        self.vocab_size, self.page_size = info["vocab_size"], info["page_size"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def handle(self) -> StructPointer:
        if not self.pointer:
            raise BadInputError("the engine is closed")
        return self.pointer

    def close(self) -> None:
        """Free the states that are left, then the engine; no other thread may be in a call."""
        for state in list(self.states):
            state.close()
        if self.pointer:
            call_bare(self.library, "free_engine", self.pointer)
            self.pointer = None
            self.buffers.clear()

    def info(self) -> EngineInfo:
        """Return `get_engine_info` as a dictionary."""
        struct = abi.InfoStruct(struct_size=ctypes.sizeof(abi.InfoStruct))
        call_bare(self.library, "get_engine_info", self.handle, ctypes.byref(struct))
        info = abi.as_dict(struct)
        info["eos_tokens"] = info["eos_tokens"][: info.pop("num_eos_tokens")]
        info["num_accepted_at"] = info["num_accepted_at"][: info["max_draft_tokens"]]
        sources = {name: abi.SIZE_SOURCES[info[name]] for name in SIZE_FIELDS}
        return cast("EngineInfo", info | sources)

    def submit(self, request: Request) -> int:
        """Queue a request and return its id; the engine copies all but `logits` and `draft_logits`.

        These buffers are kept alive until the event that ends the request.
        """
        check_logits_buffers(request, self.vocab_size)
        check_mask(request.mask, self.vocab_size)
        struct = abi.RequestStruct()
        self.library.engine_default_request(ctypes.byref(struct))
        alive = fill_request(struct, request)
        request_id = ctypes.c_uint64()
        with self.events_lock:
            call(
                self.library,
                "engine_submit",
                self.handle,
                ctypes.byref(struct),
                ctypes.byref(request_id),
            )
            if buffers := [alive[name] for name in LOGITS if name in alive]:
                self.buffers[request_id.value] = buffers
        return request_id.value

    def cancel(self, request_id: int) -> None:
        """End a live request before the next step is planned; its last event says `cancelled`.

        Raises EngineError with GLM_NOT_FOUND where the request is not live.
        """
        call(self.library, "engine_cancel", self.handle, checked_id(request_id))

    def cancel_quietly(self, request_id: int) -> bool:
        """Cancel a request that may have ended by itself; say whether it had not."""
        try:
            self.cancel(request_id)
        except EngineError as error:
            if error.status != Status.GLM_NOT_FOUND:
                raise
            return False
        return True

    def preempt(self, request_id: int) -> None:
        """Put a running request back in the queue, its pages saved on the host.

        Nothing happens to one that waits. Raises EngineError with GLM_NOT_FOUND where the
        request is not live.
        """
        call(self.library, "engine_preempt", self.handle, checked_id(request_id))

    def set_masks(self, masks: Sequence[TokenMask]) -> None:
        """Give (request id, index, mask) each: the mask of output token `index` of a request.

        The request was submitted with a mask, and its token `index - 1` has been sampled. None
        allows every token at that index. Masks given in one call are in force together. Each
        that can be given is, also where the call fails; a request that has ended is the failure
        GLM_NOT_FOUND, stated only where there is no other.

        A fourth member, `num_drafts`, says that so many tokens before `index` are drafts that the
        caller has not seen sampled. If they are drawn, the mask is in force; otherwise it is
        forgotten and can be given again. A fifth member is the draft at `index - 1`; without it, it
        is that of the request's `draft_tokens`.
        """
        structs, alive = mask_structs(masks, self.vocab_size)
        call(self.library, "engine_set_masks", self.handle, structs, len(structs))
        del alive

    def resize_pool(self, num_pages: int) -> None:
        """Shrink the pool to so many KV pages, or grow it again up to what was planned at init.

        Raises EngineError: GLM_INVALID_ARGUMENT where `num_pages` is out of that range or too
        few for a live request, GLM_OUT_OF_MEMORY where states hold more, GLM_QUEUE_FULL where
        too many events wait to be polled, or the failure of the device.
        """
        number = checked_number("num_pages", num_pages)
        call(self.library, "engine_resize_pool", self.handle, number)

    def poll(self) -> list[Event]:
        """Return the events that wait, in order; never blocks."""
        return events_of(self.poll_records())

    def poll_records(self) -> "NDArray[numpy.void]":
        """Return the events that wait as a numpy array, its fields those of `engine_event`.

        Never blocks. There may be more than one call returns: the file of `event_fd` stays
        readable while events wait.
        """
        count = ctypes.c_int32()
        with self.events_lock:
            call_bare(
                self.library,
                "engine_poll",
                self.handle,
                self.events_pointer,
                POLL_CAPACITY,
                ctypes.byref(count),
            )
            records = self.events[: count.value].copy()
            if self.buffers:
                for request_id in records["request_id"][records["finish_reason"] > 0]:
                    self.buffers.pop(int(request_id), None)
        return records

    def wait(self, seconds: float) -> bool:
        """Wait until an event is there; False when the time was over first."""
        status = self.library.engine_wait(self.handle, int(seconds * 1e9))
        if status == Status.GLM_NOT_FOUND:
            return False
        if status != Status.GLM_OK:
            raise EngineError("engine_wait", status, "")
        return True

    def event_fd(self) -> int:
        """Return the descriptor of an eventfd that is readable while events wait.

        It is the engine's and is closed with it; only `poll` reads it. This cannot fail.
        """
        return int(self.library.engine_event_fd(self.handle))

    def take_kv_events(self) -> tuple["NDArray[numpy.void]", "NDArray[numpy.int32]"]:
        """Return what entered and left the prefix cache since the last call, oldest first.

        An array of `engine_kv_event` and the tokens of each page, int32 [events][page_size],
        which mean nothing where no page was stored. Never blocks; there may be more than one
        call returns. Raises EngineError with GLM_NOT_SUPPORTED without the option `kv_events`.
        """
        import numpy

        records, pointer = event_records(POLL_CAPACITY, "engine_kv_event")
        tokens = numpy.empty((POLL_CAPACITY, self.page_size), dtype=numpy.int32)
        count = ctypes.c_int32()
        call_bare(
            self.library,
            "engine_take_kv_events",
            self.handle,
            pointer,
            tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            POLL_CAPACITY,
            ctypes.byref(count),
        )
        return records[: count.value], tokens[: count.value]

    def kv_event_fd(self) -> int:
        """Return the descriptor of an eventfd that is readable while KV events wait.

        It is the engine's and is closed with it; -1 without the option `kv_events`.
        """
        return int(self.library.engine_kv_event_fd(self.handle))

    def take_steps(self) -> list[Step]:
        """Return the steps landed since the last call, oldest first, as dictionaries."""
        taken: list[Step] = []
        while True:
            count = ctypes.c_int32()
            call_bare(
                self.library,
                "engine_take_steps",
                self.handle,
                self.steps,
                POLL_CAPACITY,
                ctypes.byref(count),
            )
            landed = self.steps[: count.value]
            taken.extend(cast("Step", abi.as_dict(step)) for step in landed)
            if count.value < POLL_CAPACITY:
                return taken

    def begin_profile(self) -> None:
        """Run steps eagerly from now on, with events around each operation."""
        call(self.library, "engine_profile_begin", self.handle)

    def end_profile(self) -> Profile:
        """Return what each operation took since `begin_profile`: steps, calls, nanoseconds."""
        profile: Profile = json_text(self.library, "engine_profile_end", self.handle)
        return profile

    def read_rate(self) -> float:
        """Measure the bytes per second at which the device reads its weights."""
        rate = ctypes.c_double()
        call(self.library, "engine_read_rate", self.handle, ctypes.byref(rate))
        return rate.value

    def prefill(
        self, tokens: Iterable[int], all_positions: bool = False
    ) -> tuple[State, "NDArray[numpy.float32]"]:
        """Run a prompt; returns its state and the logits, [vocab] or [tokens][vocab]."""
        array = int32_array("tokens", tokens)
        logits = self.logits_array(len(array) if all_positions else None)
        pointer = abi.StatePointer()
        call(
            self.library,
            "prefill",
            self.handle,
            pointer_to(array),
            len(array),
            int(all_positions),
            float_pointer(logits),
            ctypes.byref(pointer),
        )
        state = State(self, pointer)
        self.states.add(state)
        return state, logits

    def decode_tokens(self, state: State, tokens: Iterable[int]) -> "NDArray[numpy.float32]":
        """Append tokens to a state and return the logits after each: float32 [tokens][vocab].

        One forward pass computes them all, each with the bits that `decode_step` gives it.
        At most `EngineOptions.max_draft_tokens` + 1 tokens fit.
        """
        ids = int32_array("tokens", tokens)
        logits = self.logits_array(len(ids))
        call(
            self.library,
            "decode_tokens",
            self.handle,
            state.handle,
            pointer_to(ids),
            len(ids),
            float_pointer(logits),
        )
        return logits

    def decode_step(self, state: State, token: int) -> "NDArray[numpy.float32]":
        """Append one token to a state and return the logits after it."""
        logits = self.logits_array(None)
        call(
            self.library,
            "decode_step",
            self.handle,
            state.handle,
            checked_number("token", token),
            float_pointer(logits),
        )
        return logits

    def run_batch_decode(
        self, states: Sequence[State], samplings: Sequence[Sampling], num_steps: int
    ) -> "NDArray[numpy.int32]":
        """Sample `num_steps` tokens for every state; returns int32 [steps][states]."""
        import numpy

        if len(samplings) != len(states):
            raise BadInputError(
                f"expected one set of sampling parameters per state ({len(states)}), "
                f"got {len(samplings)}"
            )
        num_steps = checked_number("num_steps", num_steps)
        tokens = numpy.empty((max(num_steps, 0), len(states)), dtype=numpy.int32)
        pointers = (abi.StatePointer * len(states))(*[state.handle for state in states])
        structs = (abi.SamplingStruct * len(states))(*[one.to_struct() for one in samplings])
        call(
            self.library,
            "run_batch_decode",
            self.handle,
            len(states),
            pointers,
            structs,
            num_steps,
            tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
        )
        return tokens

    def logits_array(self, num_rows: int | None) -> "NDArray[numpy.float32]":
        import numpy

        shape = self.vocab_size if num_rows is None else (num_rows, self.vocab_size)
        return numpy.empty(shape, dtype=numpy.float32)


def float_pointer(array: "NDArray[numpy.float32]") -> object:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


def checked_id(request_id: int) -> int:
    return checked_number("request_id", request_id, "uint64_t")

"""The probes of the debug build: functions of engine.so that only tests call.

`GLM_PROBE_LIBRARY` names another library that has them.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

import numpy as np

from glm_engine.core import abi
from glm_engine.core.abi import event_records

ROOT = Path(__file__).resolve().parents[2]
DEBUG_LIBRARY = ROOT / "build" / "debug" / "engine.so"
ALL_BITS = 2**64 - 1

MESSAGE = ctypes.POINTER(abi.Message)
INT32_ARRAY = ctypes.POINTER(ctypes.c_int32)
INT64_ARRAY = ctypes.POINTER(ctypes.c_int64)
FLOAT_ARRAY = ctypes.POINTER(ctypes.c_float)
WORDS = ctypes.POINTER(ctypes.c_uint32)
STATE = ctypes.c_void_p
STATES = ctypes.POINTER(ctypes.c_void_p)
HANDLE = ctypes.c_void_p
INT32 = ctypes.c_int32

LEDGER_FIELDS = (
    "num_pages",
    "page_size",
    "max_seq",
    "max_batch",
    "max_step_tokens",
    "prefill_chunk",
    "max_logit_rows",
    "max_queue",
    "prefix_cache",
    "caches_answers",
    "vocab_size",
    "eos_token",
    "is_manual",
    "plans_ahead",
    "kv_events",
    "decode_ns",
    "step_budget_ms",
    "step_us",
    "row_us",
    "device_percent",
    "decode_context_ns",
    "prefill_context_ns",
    "max_draft_tokens",
    "speculate",
    "acceptance_length",
    "max_draft_rows",
    "layer_percent",
    "draft_us",
)


class LedgerOptions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in LEDGER_FIELDS]


FUNCTIONS = {
    "page_pool_open": (HANDLE, INT32, INT32, ctypes.c_uint64, MESSAGE),
    "page_pool_close": (None, HANDLE),
    "page_pool_counts": (None, HANDLE, INT64_ARRAY),
    "page_pool_move": (None, HANDLE, INT32, INT32_ARRAY, INT32_ARRAY),
    "page_pool_tell_events": (INT32, HANDLE, MESSAGE),
    "page_pool_take_events": (
        INT32,
        HANDLE,
        ctypes.POINTER(abi.KvEventStruct),
        INT32_ARRAY,
        INT32,
    ),
    "page_pool_count_registered": (INT32, HANDLE),
    "page_pool_acquire": (INT32, HANDLE),
    "page_pool_retain": (None, HANDLE, INT32),
    "page_pool_release": (None, HANDLE, INT32),
    "page_pool_find": (INT32, HANDLE, INT32, INT32_ARRAY),
    "page_pool_register": (INT32, HANDLE, INT32, INT32, INT32_ARRAY),
    "page_pool_drop_cache": (None, HANDLE),
    "page_pool_plan_resize": (INT32, HANDLE, INT32),
    "page_pool_commit_resize": (None, HANDLE, INT32, INT32),
    "page_pool_is_consistent": (ctypes.c_bool, HANDLE),
    "mask_queue_open": (HANDLE, INT32, INT32),
    "mask_queue_close": (None, HANDLE),
    "mask_queue_give": (
        INT32,
        HANDLE,
        ctypes.POINTER(abi.MaskStruct),
        INT32_ARRAY,
        ctypes.c_int64,
        MESSAGE,
    ),
    "mask_queue_take": (None, HANDLE, INT32_ARRAY, INT32, ctypes.c_int64),
    "mask_queue_publish": (None, HANDLE, INT32_ARRAY, INT32, ctypes.c_int64),
    "mask_queue_lacks": (ctypes.c_bool, HANDLE, INT32),
    "mask_queue_at": (WORDS, HANDLE, INT32),
    "mask_queue_is_late": (ctypes.c_bool, HANDLE, ctypes.c_bool),
    "lookup_open": (HANDLE, ctypes.c_int64),
    "lookup_close": (None, HANDLE),
    "lookup_predict": (None, HANDLE, INT32_ARRAY, INT32),
    "lookup_read": (None, HANDLE, INT32_ARRAY, INT32),
    "lookup_push": (None, HANDLE, INT32),
    "lookup_continuation": (INT32, HANDLE, INT32_ARRAY, INT32),
    "draft_batch_open": (HANDLE, INT32, INT32, INT32_ARRAY, INT64_ARRAY, ctypes.c_double),
    "draft_batch_close": (None, HANDLE),
    "draft_batch_renew": (None, HANDLE, INT32),
    "draft_batch_believe": (None, HANDLE, FLOAT_ARRAY),
    "draft_batch_beliefs": (None, HANDLE, FLOAT_ARRAY),
    "draft_batch_choose": (None, HANDLE, INT32_ARRAY, INT32_ARRAY, INT32, INT32_ARRAY),
    "draft_batch_learn": (None, HANDLE, INT32_ARRAY, INT32_ARRAY, INT32_ARRAY),
    "count_loop_iterations": (INT32, INT32, INT32, INT32_ARRAY),
    "count_stepped_iterations": (INT32, INT32, INT32, INT32),
    "ledger_open": (HANDLE, ctypes.POINTER(LedgerOptions), MESSAGE),
    "ledger_close": (None, HANDLE),
    "ledger_fail_at": (None, HANDLE, INT32, INT32, ctypes.c_bool),
    "ledger_cost_factor": (ctypes.c_double, HANDLE),
    "ledger_planning_delay": (ctypes.c_int64, HANDLE, ctypes.c_int64),
    "ledger_is_consistent": (ctypes.c_bool, HANDLE),
    "ledger_calls": (None, HANDLE, INT32_ARRAY),
    "ledger_iterate": (None, HANDLE),
    "ledger_submit": (
        INT32,
        HANDLE,
        ctypes.POINTER(abi.RequestStruct),
        ctypes.POINTER(ctypes.c_uint64),
        MESSAGE,
    ),
    "ledger_cancel": (INT32, HANDLE, ctypes.c_uint64, MESSAGE),
    "ledger_preempt": (INT32, HANDLE, ctypes.c_uint64, MESSAGE),
    "ledger_set_masks": (INT32, HANDLE, ctypes.POINTER(abi.MaskStruct), INT32, MESSAGE),
    "ledger_poll": (INT32, HANDLE, ctypes.POINTER(abi.EventStruct), INT32, INT32_ARRAY),
    "ledger_wait": (INT32, HANDLE, ctypes.c_int64),
    "ledger_event_fd": (INT32, HANDLE),
    "ledger_info": (None, HANDLE, ctypes.POINTER(abi.InfoStruct)),
    "ledger_resize_pool": (INT32, HANDLE, INT32, MESSAGE),
    "ledger_prefill": (
        INT32,
        HANDLE,
        INT32_ARRAY,
        INT32,
        ctypes.c_bool,
        FLOAT_ARRAY,
        STATES,
        MESSAGE,
    ),
    "ledger_decode_tokens": (INT32, HANDLE, STATE, INT32_ARRAY, INT32, FLOAT_ARRAY, MESSAGE),
    "ledger_run_batch_decode": (
        INT32,
        HANDLE,
        INT32,
        STATES,
        ctypes.POINTER(abi.SamplingStruct),
        INT32,
        INT32_ARRAY,
        MESSAGE,
    ),
    "ledger_free_state": (None, HANDLE, STATE),
    "engine_default_request": (None, ctypes.POINTER(abi.RequestStruct)),
    "scheduler_measure_plan": (INT32, INT32, INT32, INT32, INT64_ARRAY, MESSAGE),
}


@cache
def library() -> ctypes.CDLL:
    """The library with the probes, its functions declared."""
    path = Path(os.environ.get("GLM_PROBE_LIBRARY", DEBUG_LIBRARY))
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: run `scons engine` first")
    loaded = ctypes.CDLL(str(path))
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


def int32s(values) -> ctypes.Array:
    return (ctypes.c_int32 * len(values))(*values)


class PagePool:
    """The engine's page pool, alone."""

    def __init__(self, capacity: int, page_size: int, hash_mask: int = ALL_BITS):
        self.library = library()
        message = abi.Message()
        self.handle = self.library.page_pool_open(capacity, page_size, hash_mask, message)
        if not self.handle:
            raise ValueError(message.text.decode())

    def close(self) -> None:
        self.library.page_pool_close(self.handle)

    def counts(self) -> tuple[int, int, int, int, int]:
        """Pages in all, free, owned, cached; evictions so far."""
        values = (ctypes.c_int64 * 5)()
        self.library.page_pool_counts(self.handle, values)
        return tuple(values)

    def acquire(self) -> int:
        return self.library.page_pool_acquire(self.handle)

    def retain(self, page: int) -> None:
        self.library.page_pool_retain(self.handle, page)

    def release(self, page: int) -> None:
        self.library.page_pool_release(self.handle, page)

    def find(self, parent: int, tokens) -> int:
        return self.library.page_pool_find(self.handle, parent, int32s(tokens))

    def register(self, page: int, parent: int, tokens) -> int:
        return self.library.page_pool_register(self.handle, page, parent, int32s(tokens))

    def drop_cache(self) -> None:
        self.library.page_pool_drop_cache(self.handle)

    def resize(self, num_pages: int) -> dict[int, int]:
        """Compact into `num_pages`; returns where the moved pages went."""
        count = self.library.page_pool_plan_resize(self.handle, num_pages)
        moves = dict(self.move(index) for index in range(count))
        self.library.page_pool_commit_resize(self.handle, num_pages, count)
        return moves

    def tell_events(self) -> None:
        """Keep KV events from now on."""
        assert self.library.page_pool_tell_events(self.handle, None) == 0

    def take_events(self, page_size: int, capacity: int = 64):
        """The KV events that wait, and the tokens of each."""
        records, pointer = event_records(capacity, "engine_kv_event")
        tokens = (ctypes.c_int32 * (capacity * page_size))()
        count = self.library.page_pool_take_events(self.handle, pointer, tokens, capacity)
        rows = np.asarray(tokens).reshape(capacity, page_size)
        return records[:count], rows[:count]

    def count_registered(self) -> int:
        return self.library.page_pool_count_registered(self.handle)

    def move(self, index: int) -> tuple[int, int]:
        source, destination = ctypes.c_int32(), ctypes.c_int32()
        self.library.page_pool_move(self.handle, index, source, destination)
        return source.value, destination.value

    def is_consistent(self) -> bool:
        return self.library.page_pool_is_consistent(self.handle)


class Lookup:
    """The lookup of one request, alone."""

    def __init__(self, num_tokens: int):
        self.library = library()
        self.handle = self.library.lookup_open(num_tokens)

    def close(self) -> None:
        self.library.lookup_close(self.handle)

    def predict(self, tokens: list[int]) -> None:
        self.library.lookup_predict(self.handle, int32s(tokens), len(tokens))

    def read(self, tokens: list[int]) -> None:
        self.library.lookup_read(self.handle, int32s(tokens), len(tokens))

    def push(self, token: int) -> None:
        self.library.lookup_push(self.handle, token)

    def continuation(self, most: int) -> list[int]:
        found = (ctypes.c_int32 * max(most, 1))()
        return found[: self.library.lookup_continuation(self.handle, found, most)]


class MaskQueue:
    """The masks of one request, alone. `outputs` are its tokens, also those that are yet to come.

    Unless a test changes it, the token at position i is i, and so is the draft before mask i + 1.
    """

    REQUEST_ID = 7
    MOST_OUTPUTS = 256

    def __init__(self, num_tokens: int, depth: int):
        self.num_words = (num_tokens + 31) // 32
        self.library = library()
        self.handle = self.library.mask_queue_open(num_tokens, depth)
        self.outputs = int32s([index % num_tokens for index in range(self.MOST_OUTPUTS)])
        self.num_tokens = num_tokens
        self.num_known = 0

    def close(self) -> None:
        self.library.mask_queue_close(self.handle)

    def give(
        self,
        index: int,
        words: list[int] | None,
        now_ns: int = 0,
        num_drafts: int | None = None,
        draft: int | None = None,
    ) -> None:
        """Gives the words of a mask, or None: every token is allowed.

        Tokens before `index` that are not published count as drafts, unless the caller counts them.
        """
        message = abi.Message()
        array = None if words is None else (ctypes.c_uint32 * self.num_words)(*words)
        if num_drafts is None:
            num_drafts = max(index - self.num_known, 0)
        if draft is None:
            draft = (index - 1) % self.num_tokens
        mask = abi.MaskStruct(self.REQUEST_ID, array, index, num_drafts, draft)
        status = self.library.mask_queue_give(self.handle, mask, self.outputs, now_ns, message)
        if status != 0:
            raise ValueError(message.text.decode())

    def take(self, num_outputs: int, patience_ns: int = 0) -> None:
        self.library.mask_queue_take(self.handle, self.outputs, num_outputs, patience_ns)

    def publish(self, num_outputs: int, now_ns: int = 0) -> None:
        self.library.mask_queue_publish(self.handle, self.outputs, num_outputs, now_ns)
        self.num_known = max(self.num_known, num_outputs)

    def lacks(self, index: int) -> bool:
        return self.library.mask_queue_lacks(self.handle, index)

    def at(self, index: int) -> list[int] | None:
        words = self.library.mask_queue_at(self.handle, index)
        return words[: self.num_words] if words else None

    def set_late(self) -> None:
        self.library.mask_queue_is_late(self.handle, True)

    def is_late(self) -> bool:
        return self.library.mask_queue_is_late(self.handle, False)

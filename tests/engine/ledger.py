"""The engine loop over a rank group that keeps a ledger of tokens where a model keeps K and V.

Each next token is a hash of all cells of the context, read through the uploaded page table, so a
wrong slot, page, table row, copy or count gives another token than `expected_tokens`, which
knows nothing of pages.
"""

import ctypes

import numpy as np

from glm_engine.core import abi
from glm_engine.core.abi import event_records
from glm_engine.core.errors import EngineError, Status
from glm_engine.core.requests import Event, Request, Sampling, events_of, fill_request, mask_structs
from tests.engine.probes import LedgerOptions, int32s, library

MASK = 2**64 - 1
PREFILL_MARK = 16777216
IN_PROMPT = 0x80000000
MULTIPLIER = 0x9E3779B97F4A7C15
EVENT_CAPACITY = 256
CALLS = ("launch", "sample", "land", "await_forward")
DRAFTED = ("row", "step")
DEFAULTS = {
    "num_pages": 64,
    "page_size": 4,
    "max_seq": 64,
    "max_batch": 8,
    "max_step_tokens": 32,
    "prefill_chunk": 0,
    "max_logit_rows": 8,
    "max_queue": 64,
    "prefix_cache": 1,
    "caches_answers": 0,
    "vocab_size": 97,
    "eos_token": -1,
    "is_manual": 1,
    "plans_ahead": 0,
    "kv_events": 0,
    "decode_ns": 0,
    "step_budget_ms": 0,
    "step_us": 0,
    "row_us": 0,
    "device_percent": 0,
    "decode_context_ns": 0,
    "prefill_context_ns": 0,
    "max_draft_tokens": 0,
    "speculate": 0,
    "acceptance_length": 0,
    "max_draft_rows": 0,
    "layer_percent": 100,
    "draft_us": 0,
}


def mix(value: int, added: int) -> int:
    value = ((value ^ (added & MASK)) * MULTIPLIER) & MASK
    return value ^ (value >> 29)


def context_hash(tokens, prompt_length: int) -> int:
    result = 0
    for position, token in enumerate(tokens):
        result = mix(result, token + 1 + (PREFILL_MARK if position < prompt_length else 0))
    return result


def has_penalties(sampling: Sampling) -> bool:
    return (
        sampling.repetition_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )


def next_token(
    tokens, prompt_length: int, request: Request, vocab_size: int, one_attention: bool = False
) -> int:
    result = context_hash(tokens, 0 if one_attention else prompt_length)
    for token, value in request.biases.items():
        result = mix(mix(result, token), int(value))
    if has_penalties(request.sampling):
        counts = np.bincount(np.asarray(tokens[prompt_length:], dtype=int), minlength=vocab_size)
        in_prompt = set(tokens[:prompt_length])
        for token in range(vocab_size):
            result = mix(result, int(counts[token]) | (IN_PROMPT if token in in_prompt else 0))
    if request.sampling.temperature > 0:
        result = mix(mix(result, request.sampling.seed), len(tokens))
    return result % (vocab_size - 1)


def expected_tokens(
    request: Request, vocab_size: int = 97, max_seq: int = 64, one_attention: bool = False
) -> list[int]:
    """The output of a request without stop conditions, from its own tokens alone."""
    tokens = list(request.prompt)
    length = len(tokens)
    while len(tokens) < length + request.max_tokens and len(tokens) <= max_seq:
        tokens.append(next_token(tokens, length, request, vocab_size, one_attention))
    return tokens[length:]


def expected_prompt_logprobs(request: Request, one_attention: bool = False) -> list[float]:
    """What the ledger says of each prompt token but the first."""
    prompt = list(request.prompt)
    begins = [prompt[:length] for length in range(1, len(prompt))]
    return [-float(context_hash(one, 0 if one_attention else len(one)) % 1000) for one in begins]


class Ledger:
    """The engine loop, stepped by hand (`is_manual`) or by its own thread."""

    def __init__(self, **options):
        self.library = library()
        self.options = {**DEFAULTS, **options}
        message = abi.Message()
        self.handle = self.library.ledger_open(LedgerOptions(**self.options), message)
        if not self.handle:
            raise ValueError(message.text.decode())
        self.records, self.buffer = event_records(EVENT_CAPACITY)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self) -> None:
        self.library.ledger_close(self.handle)

    def call(self, name: str, *arguments) -> None:
        message = abi.Message()
        status = getattr(self.library, f"ledger_{name}")(self.handle, *arguments, message)
        if status != Status.GLM_OK:
            raise EngineError(name, status, message.text.decode())

    def submit(self, request: Request) -> int:
        struct = abi.RequestStruct()
        self.library.engine_default_request(struct)
        alive = fill_request(struct, request)
        request_id = ctypes.c_uint64()
        self.call("submit", struct, request_id)
        del alive
        return request_id.value

    def cancel(self, request_id: int) -> None:
        self.call("cancel", request_id)

    def preempt(self, request_id: int) -> None:
        self.call("preempt", request_id)

    def set_masks(self, masks: list[tuple[int, int, np.ndarray | None]]) -> None:
        structs, alive = mask_structs(masks, self.options["vocab_size"])
        self.call("set_masks", structs, len(structs))
        del alive

    def resize_pool(self, num_pages: int) -> None:
        self.call("resize_pool", num_pages)

    def fail_at(self, step: int = -1, transfer: int = -1, for_good: bool = False) -> None:
        """Make the step (or transfer) of that number, counted from now, fail."""
        self.library.ledger_fail_at(self.handle, step, transfer, for_good)

    def iterate(self) -> None:
        self.library.ledger_iterate(self.handle)
        assert self.is_consistent()

    def calls(self) -> dict[str, int]:
        """How often the rank group was told to do what, so far."""
        return dict(zip(CALLS, self.counts_of_ranks(), strict=False))

    def drafted(self) -> dict[str, int]:
        """How many draft rows the prediction layer has computed, and in how many steps."""
        return dict(zip(DRAFTED, self.counts_of_ranks()[len(CALLS) :], strict=True))

    def counts_of_ranks(self) -> list[int]:
        counts = (ctypes.c_int32 * (len(CALLS) + len(DRAFTED)))()
        self.library.ledger_calls(self.handle, counts)
        return list(counts)

    def cost_factor(self) -> float:
        """What steps with prompts took, over what they were expected to, so far."""
        return self.library.ledger_cost_factor(self.handle)

    def planning_delay_ms(self, expected_ms: float) -> float:
        """How long after a step of that length began the next is planned."""
        return self.library.ledger_planning_delay(self.handle, int(expected_ms * 1e6)) / 1e6

    def is_consistent(self) -> bool:
        return self.library.ledger_is_consistent(self.handle)

    def poll_records(self) -> np.ndarray:
        count = ctypes.c_int32()
        status = self.library.ledger_poll(self.handle, self.buffer, EVENT_CAPACITY, count)
        assert status == Status.GLM_OK
        return self.records[: count.value].copy()

    def poll(self) -> list[Event]:
        return events_of(self.poll_records())

    def poll_all(self) -> list[Event]:
        events, some = [], self.poll()
        while some:
            events += some
            some = self.poll()
        return events

    def wait(self, seconds: float) -> bool:
        return self.library.ledger_wait(self.handle, int(seconds * 1e9)) == Status.GLM_OK

    def info(self) -> dict:
        struct = abi.InfoStruct()
        self.library.ledger_info(self.handle, struct)
        return abi.as_dict(struct)

    def run(self, most_steps: int = 2000) -> list[Event]:
        """Step until no request is live; returns all events."""
        events = self.poll_all()
        for _ in range(most_steps):
            if self.info()["live_requests"] == 0:
                return events
            self.iterate()
            events += self.poll_all()
        raise AssertionError(f"requests are still live after {most_steps} steps: {self.info()}")

    def prefill(self, tokens, all_positions: bool = False):
        shape = (len(tokens) if all_positions else 1, self.options["vocab_size"])
        logits = np.zeros(shape, dtype=np.float32)
        state = ctypes.c_void_p()
        pointer = logits.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self.call("prefill", int32s(tokens), len(tokens), all_positions, pointer, state)
        return state.value, logits

    def decode_step(self, state: int, token: int) -> np.ndarray:
        return self.decode_tokens(state, [token])[0]

    def decode_tokens(self, state: int, tokens) -> np.ndarray:
        logits = np.zeros((len(tokens), self.options["vocab_size"]), dtype=np.float32)
        pointer = logits.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self.call("decode_tokens", state, int32s(tokens), len(tokens), pointer)
        return logits

    def run_batch_decode(self, states, samplings, num_steps: int) -> np.ndarray:
        tokens = np.zeros((num_steps, len(states)), dtype=np.int32)
        self.call(
            "run_batch_decode",
            len(states),
            (ctypes.c_void_p * len(states))(*states),
            (abi.SamplingStruct * len(states))(*[one.to_struct() for one in samplings]),
            num_steps,
            tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
        )
        return tokens

    def free_state(self, state: int) -> None:
        self.library.ledger_free_state(self.handle, state)


def outputs_of(events) -> dict[int, list[int]]:
    """The tokens of each request; their indices must be 0, 1, 2 and so on."""
    outputs = {}
    for event in events:
        tokens = outputs.setdefault(event.request_id, [])
        if event.kind == "token":
            assert event.index == len(tokens)
            tokens.append(event.token_id)
    return outputs


def prompt_logprobs_of(events) -> dict[int, list[float]]:
    """Those of each request's prompt tokens, which come in order and before its output."""
    found = {}
    for event in events:
        rows = found.setdefault(event.request_id, [])
        if event.kind == "prompt_token":
            assert event.index == len(rows) + 1
            rows.append(event.logprob)
        elif event.kind == "token" and rows:
            assert len(rows) == event.prompt_tokens - 1
    return found


def ends_of(events) -> dict[int, Event]:
    """The end event of each request, of which there is exactly one."""
    ends = [event for event in events if event.ends_request]
    assert len({event.request_id for event in ends}) == len(ends)
    return {event.request_id: event for event in ends}

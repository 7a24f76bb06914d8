"""What a caller asks of the engine, in Python's types, and the structs made of it."""

import ctypes
import functools
import operator
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, cast

from glm_engine.core import abi
from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import StrPath
from glm_engine.core.reports import ShowProgress

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray
    from typing_extensions import Buffer

INTEGER_RANGES = {
    "int32_t": range(-(2**31), 2**31),
    "int64_t": range(-(2**63), 2**63),
    "uint64_t": range(2**64),
}
INT32, FLOAT = "i", "f"
OPTION_TYPES = {
    name: c_type
    for name, c_type, *_ in abi.STRUCTS["engine_options"]
    if name != "struct_size" and c_type in ("int32_t", "int64_t", "float")
}
NAMED_NUMBERS = {"expert_layout": abi.EXPERT_LAYOUTS, "speculate": abi.SPECULATE}
C_TYPES: dict[str, type[ctypes.c_int32 | ctypes.c_float]] = {
    INT32: ctypes.c_int32,
    FLOAT: ctypes.c_float,
}
FLOAT_BYTES = 4
LENGTHS = {
    "prompt_length": "prompt",
    "num_stop_tokens": "stop_tokens",
    "num_biases": "bias_tokens",
    "num_allowed_tokens": "allowed_tokens",
    "num_draft_tokens": "draft_tokens",
    "num_prediction_tokens": "prediction_tokens",
}
LOGITS = ("logits", "draft_logits")
MASK_BITS = 32
ArrayBuffer: TypeAlias = "Buffer | NDArray[Any]"
TokenMask = (
    tuple[int, int, "ArrayBuffer | None"]
    | tuple[int, int, "ArrayBuffer | None", int]
    | tuple[int, int, "ArrayBuffer | None", int, int]
)


@dataclass
class EngineOptions:
    """Options of `init_engine_with`; None leaves the engine's default.

    `progress` is called with (bytes_done, bytes_total, stage) while weights load.
    """

    model_dir: StrPath
    device: str = "auto"
    library_dir: StrPath | None = None
    world_size: int | None = None
    max_batch: int | None = None
    max_seq: int | None = None
    page_size: int | None = None
    num_pages: int | None = None
    expert_layout: str | None = None
    num_threads: int | None = None
    max_step_tokens: int | None = None
    prefill_chunk: int | None = None
    max_queue: int | None = None
    prefix_cache: bool | None = None
    kv_dtype: int | None = None
    max_logit_rows: int | None = None
    memory_limit_bytes: int | None = None
    graphs: bool | None = None
    plan_ahead: bool | None = None
    check_operations: bool | None = None
    synthetic: bool | None = None
    num_layers: int | None = None
    memory_limit_percent: int | None = None
    device_memory_bytes: int | None = None
    kv_events: bool | None = None
    step_budget_ms: int | None = None
    ranks_per_device: int | None = None
    max_draft_tokens: int | None = None
    speculate: str | None = None
    acceptance_length: float | None = None
    progress: ShowProgress | None = None

    def numbers(self) -> dict[str, float]:
        """Return the options that the caller set and that are plain numbers."""
        values = {name: getattr(self, name) for name in OPTION_TYPES}
        for option, numbers in NAMED_NUMBERS.items():
            if values[option] is not None:
                values[option] = number_of(option, values[option], numbers)
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from its logits; temperature 0 takes the greatest."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    num_logprobs: int = -1
    seed: int = 0

    def to_struct(self) -> ctypes.Structure:
        return abi.SamplingStruct(
            **{
                name: checked_value(name, getattr(self, name), c_type)
                for name, c_type, *_ in abi.STRUCTS["engine_sampling"]
            }
        )


@dataclass(frozen=True)
class ThoughtLimit:
    """Behind `max_tokens` tokens of a thought, `end_token` comes, unless it came before.

    A thought `is_open` at the end of the prompt, or `begin_token` opens it as one of the first two.
    """

    max_tokens: int
    end_token: int
    begin_token: int = -1
    is_open: bool = False


@dataclass(frozen=True)
class Request:
    """One prompt to continue. `logits` is a writable float32 buffer or None.

    `draft_logits` is one too: row i gets the prediction layer's logits behind output token i, where
    the layer drafted there.

    `mask` is None for a request without masks, else the mask of its first output token:
    ceil(vocab / 32) words of uint32, bit t % 32 of word t / 32 set where token t is allowed.
    Such a request waits before each later token until `Engine.set_masks` gave its mask.

    A greater `priority` goes first here; over HTTP a lower one does, as in vLLM.

    Tokens outside `allowed_tokens` never come (none of it: all may), nor does the last token of one
    of `bad_words` behind its others.

    `draft_tokens` are the output tokens that the caller expects, from the first on. With
    `EngineOptions.max_draft_tokens` n, a forward pass computes up to n of them beside the next
    token. They change the number of forward passes, but not the output.

    With `EngineOptions.speculate`, the engine drafts the tokens of other requests itself: what came
    behind an earlier place of the prompt or output that ends like the output. `prediction_tokens`
    is a text that the output is expected to follow, another source of drafts; those behind the
    context length are not used.

    With `num_prompt_logprobs` k ≥ 0 each prompt token but the first comes as an event of the kind
    `prompt_token`, with its log-probability and the k best in its place; -1 asks for none.
    """

    prompt: Sequence[int]
    max_tokens: int = 64
    min_tokens: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    ignore_eos: bool = False
    stop_tokens: Sequence[int] = ()
    stop_sequences: Sequence[Sequence[int]] = ()
    biases: Mapping[int, float] = field(default_factory=dict)
    priority: int = 0
    deadline_ns: int = 0
    logits: "ArrayBuffer | None" = None
    logits_capacity: int = 0
    draft_logits: "ArrayBuffer | None" = None
    mask: "ArrayBuffer | None" = None
    allowed_tokens: Sequence[int] = ()
    bad_words: Sequence[Sequence[int]] = ()
    thought: ThoughtLimit | None = None
    num_prompt_logprobs: int = -1
    draft_tokens: Sequence[int] = ()
    prediction_tokens: Sequence[int] = ()


@dataclass(frozen=True)
class Event:
    """One thing that happened to a request; `kind` is one of `EVENT_KINDS`.

    The event that ends a request says how many draft tokens were computed for it, and how many
    were right. `drafts` are the tokens that `EngineOptions.speculate` expects behind a token of
    a request with masks: `Engine.set_masks` can give their masks with it.
    """

    request_id: int
    kind: str
    finish_reason: str
    status: int
    token_id: int
    index: int
    prompt_tokens: int
    cached_tokens: int
    logprob: float
    top_logprobs: Sequence[tuple[int, float]]
    time_ns: int
    message: str
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_predicted_tokens: int = 0
    drafts: Sequence[int] = ()

    @property
    def ends_request(self) -> bool:
        return self.kind in ("finished", "failed")


EVENT_KINDS = {
    abi.EVENT_TOKEN: "token",
    abi.EVENT_FINISHED: "finished",
    abi.EVENT_FAILED: "failed",
    abi.EVENT_PROMPT_TOKEN: "prompt_token",
}


def number_of(option: str, name: str, numbers: Mapping[str, int]) -> int:
    """Return the number of an option's value; a name that is unknown is a BadInputError."""
    if name not in numbers:
        known = ", ".join(numbers)
        raise BadInputError(f"{option} is {name!r}; expected one of {known}")
    return numbers[name]


def int32_array(name: str, values: Iterable[int]) -> "array[int]":
    """Return ids as an `array` of C's ints; an id that 32 bits cannot hold is an error.

    One that is such an array is not copied.
    """
    if isinstance(values, array) and values.typecode == INT32:
        return values
    values = list(values)
    try:
        return array(INT32, values)
    except (OverflowError, TypeError):
        checked = [checked_number(f"{name}[{at}]", value) for at, value in enumerate(values)]
        return array(INT32, checked)


def pointer_to(numbers: "array[int] | array[float]") -> object:
    """Return the pointer to an array's numbers, None where it is empty.

    `ctypes.cast` and arrays of ctypes' own would leave reference cycles behind, and a class for
    each length.
    """
    return ctypes.pointer(C_TYPES[numbers.typecode].from_buffer(numbers)) if numbers else None


def checked_number(name: str, value: SupportsIndex, c_type: str = "int32_t") -> int:
    """Return an integer that the C type can hold; ctypes alone would cut it off silently."""
    try:
        number = operator.index(value)
    except TypeError:
        raise BadInputError(f"{name} is {value!r}; expected an integer") from None
    known = INTEGER_RANGES[c_type]
    if number not in known:
        raise BadInputError(f"{name} is {number}; expected {known.start} to {known.stop - 1}")
    return number


def checked_value(name: str, value: float, c_type: str) -> float:
    """Return a number for a C type that may be float, too."""
    return value if c_type == "float" else checked_number(name, cast("int", value), c_type)


def fill_options(struct: ctypes.Structure, options: EngineOptions) -> dict[str, bytes]:
    """Write the caller's options over the engine's defaults; returns what must live on."""
    struct.struct_size = ctypes.sizeof(struct)
    texts = {
        name: os.fsencode(value)
        for name in ("model_dir", "device", "library_dir")
        if (value := getattr(options, name)) is not None
    }
    for name, value in texts.items():
        if b"\0" in value:
            raise BadInputError(f"{name} is {value!r}, which contains a zero byte")
        setattr(struct, name, value)
    for name, value in options.numbers().items():
        setattr(struct, name, checked_value(name, value, OPTION_TYPES[name]))
    return texts


def fill_request(struct: ctypes.Structure, request: Request) -> dict[str, object]:
    """Write a request into its struct; returns the arrays that must outlive the call."""
    struct.struct_size = ctypes.sizeof(struct)
    flat, begins = flattened(request.stop_sequences)
    flat_words, word_begins = flattened(request.bad_words)
    arrays: dict[str, array[int] | array[float]] = {
        "prompt": int32_array("prompt", request.prompt),
        "stop_tokens": int32_array("stop_tokens", request.stop_tokens),
        "stop_sequence_begin": int32_array("stop_sequence_begin", begins),
        "stop_sequence_tokens": int32_array("stop_sequences", flat),
        "bias_tokens": int32_array("biases", request.biases),
        "bias_values": array(FLOAT, request.biases.values()),
        "allowed_tokens": int32_array("allowed_tokens", request.allowed_tokens),
        "bad_word_begin": int32_array("bad_word_begin", word_begins),
        "bad_word_tokens": int32_array("bad_words", flat_words),
        "draft_tokens": int32_array("draft_tokens", request.draft_tokens),
        "prediction_tokens": int32_array("prediction_tokens", request.prediction_tokens),
    }
    alive: dict[str, object] = {**arrays}
    for name, numbers in arrays.items():
        setattr(struct, name, pointer_to(numbers))
    for length, name in LENGTHS.items():
        setattr(struct, length, len(arrays[name]))
    struct.num_stop_sequences = len(begins) - 1
    struct.num_bad_words = len(word_begins) - 1
    struct.sampling = request.sampling.to_struct()
    struct.ignore_eos = int(request.ignore_eos)
    for name in ("max_tokens", "min_tokens", "priority", "logits_capacity", "num_prompt_logprobs"):
        setattr(struct, name, checked_number(name, getattr(request, name)))
    struct.deadline_ns = checked_number("deadline_ns", request.deadline_ns, "int64_t")
    for name in LOGITS:
        if (rows := getattr(request, name)) is not None:
            alive[name] = floats = (ctypes.c_float * 0).from_buffer(view_of(rows))
            setattr(struct, name, ctypes.cast(floats, type(getattr(struct, name))))
    if (thought := request.thought) is not None:
        struct.max_thought_tokens = checked_number("max_thought_tokens", thought.max_tokens)
        struct.thought_end_token = checked_number("thought_end_token", thought.end_token)
        struct.thought_begin_token = checked_number("thought_begin_token", thought.begin_token)
        struct.thought_is_open = int(thought.is_open)
    if request.mask is not None:
        alive["mask"], struct.mask = mask_words(request.mask)
    return alive


def check_logits_buffers(request: Request, vocab_size: int) -> None:
    """Refuse a buffer that is smaller than the rows that the request asks for."""
    for name in LOGITS:
        rows = getattr(request, name)
        if rows is not None and request.logits_capacity > 0:
            view, num_rows = view_of(rows), request.logits_capacity
            needed = num_rows * vocab_size * FLOAT_BYTES
            if view.itemsize not in (1, FLOAT_BYTES) or view.nbytes < needed:
                raise BadInputError(
                    f"{name} buffer: expected at least {needed} bytes ({num_rows} rows of "
                    f"{vocab_size} float32), got {view.nbytes} bytes in {view.itemsize}-byte items"
                )


def view_of(buffer: "ArrayBuffer") -> memoryview:
    """Return the memory of a buffer; before Python 3.12 types do not say that an array is one."""
    return memoryview(cast("Buffer", buffer))


def mask_words(mask: "ArrayBuffer") -> tuple["NDArray[numpy.uint32]", object]:
    """Return the words of a contiguous buffer without copying it, and where they lie."""
    import numpy

    words = numpy.frombuffer(view_of(mask), dtype=numpy.uint32)
    return words, ctypes.pointer(ctypes.c_uint32.from_address(words.ctypes.data))


@functools.cache
def array_of_masks(length: int) -> type[ctypes.Array[ctypes.Structure]]:
    """Return the type of an array of so many; made anew, it is cyclic garbage of seven objects."""
    return abi.MaskStruct * length


def mask_structs(
    masks: Sequence[TokenMask], vocab_size: int
) -> tuple[ctypes.Array[ctypes.Structure], list["NDArray[numpy.uint32]"]]:
    """Return the structs of the masks as `Engine.set_masks` takes them, and what must live on."""
    structs, alive = array_of_masks(len(masks))(), []
    for struct, (request_id, index, mask, *draft) in zip(structs, masks, strict=True):
        check_mask(mask, vocab_size)
        struct.request_id = checked_number("request_id", request_id, "uint64_t")
        struct.index = checked_number("index", index)
        struct.num_drafts = checked_number("num_drafts", draft[0] if draft else 0)
        struct.draft_token = checked_number("draft_token", draft[1] if draft[1:] else -1)
        if mask is not None:
            words, struct.words = mask_words(mask)
            alive.append(words)
    return structs, alive


def check_mask(mask: "ArrayBuffer | None", vocab_size: int) -> None:
    """Refuse a mask of another size than the vocabulary's, and one that is not contiguous."""
    if mask is None:
        return
    view = view_of(mask)
    needed = -(-vocab_size // MASK_BITS) * (MASK_BITS // 8)
    if view.nbytes != needed or not view.c_contiguous:
        raise BadInputError(
            f"mask: expected {needed} contiguous bytes (one bit for each of {vocab_size} tokens, "
            f"in words of {MASK_BITS} bits), got {view.nbytes} bytes"
            f"{'' if view.c_contiguous else ' that are not contiguous'}"
        )


def flattened(sequences: Iterable[Iterable[int]]) -> tuple[list[int], list[int]]:
    """Return all tokens in one list and where each sequence begins, end included."""
    flat: list[int] = []
    begins = [0]
    for sequence in sequences:
        flat.extend(sequence)
        begins.append(len(flat))
    return flat, begins


def events_of(records: "NDArray[numpy.void]") -> list[Event]:
    """Return the events of a numpy array whose fields are those of `engine_event`."""
    names = records.dtype.names or ()
    return [event_of(dict(zip(names, record, strict=True))) for record in records.tolist()]


def event_of(fields: Mapping[str, Any]) -> Event:
    """Return the event with the fields of one `engine_event`, by name."""
    count = max(0, min(fields["num_logprobs"], abi.MAX_LOGPROBS))
    top_ids, top_logprobs = (fields[name][:count].tolist() for name in ("top_ids", "top_logprobs"))
    return Event(
        request_id=fields["request_id"],
        kind=EVENT_KINDS.get(fields["kind"], f"unknown kind {fields['kind']}"),
        finish_reason=finish_reason(fields["finish_reason"]),
        status=fields["status"],
        token_id=fields["token_id"],
        index=fields["index"],
        prompt_tokens=fields["prompt_tokens"],
        cached_tokens=fields["cached_tokens"],
        logprob=fields["logprob"],
        top_logprobs=list(zip(top_ids, top_logprobs, strict=True)),
        time_ns=fields["time_ns"],
        message=fields["message"].decode("utf-8", "replace"),
        num_draft_tokens=fields["num_draft_tokens"],
        num_accepted_tokens=fields["num_accepted_tokens"],
        num_predicted_tokens=fields["num_predicted_tokens"],
        drafts=fields["drafts"][: fields["num_drafts"]].tolist(),
    )


def finish_reason(number: int) -> str:
    known = 0 <= number < len(abi.FINISH_REASONS)
    return abi.FINISH_REASONS[number] if known else f"unknown reason {number}"

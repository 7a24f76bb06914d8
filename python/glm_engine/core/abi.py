"""The C ABI of native/include/glm/engine.h as tables, and the ctypes made of them.

The tables repeat the header's own words; tests/python/core/test_abi.py has the C compiler
compare every field, offset, size and function type with the header. numpy's structured arrays
of the same structs are filled in one call.
"""

import ctypes

MESSAGE_CAPACITY = 1024
MAX_LOGPROBS = 20
MAX_EOS_TOKENS = 16
EVENT_MESSAGE_CAPACITY = 256
MAX_DRAFT_TOKENS = 7

EXPERT_LAYOUTS = {"default": 0, "tensor_parallel": 1, "expert_parallel": 2}
SPECULATE = {"off": 0, "lookup": 1, "auto": 2, "mtp": 3}
SIZE_SOURCES = ("option", "model", "default", "num_pages", "memory")
EVENT_TOKEN, EVENT_FINISHED, EVENT_FAILED, EVENT_PROMPT_TOKEN = 1, 2, 3, 4
KV_STORED, KV_REMOVED, KV_CLEARED = 1, 2, 3
FINISH_REASONS = (
    "none",
    "stop_token",
    "stop_sequence",
    "length",
    "cancelled",
    "deadline",
    "error",
)

OPAQUE = ("glm_engine", "engine_state", "engine_text")

STRUCTS = {
    "glm_message": [("text", "char", MESSAGE_CAPACITY)],
    "engine_options": [
        ("struct_size", "uint32_t"),
        ("world_size", "int32_t"),
        ("model_dir", "const char*"),
        ("device", "const char*"),
        ("library_dir", "const char*"),
        ("max_batch", "int32_t"),
        ("max_seq", "int32_t"),
        ("page_size", "int32_t"),
        ("num_pages", "int32_t"),
        ("expert_layout", "int32_t"),
        ("num_threads", "int32_t"),
        ("max_step_tokens", "int32_t"),
        ("prefill_chunk", "int32_t"),
        ("max_queue", "int32_t"),
        ("prefix_cache", "int32_t"),
        ("kv_dtype", "int32_t"),
        ("max_logit_rows", "int32_t"),
        ("memory_limit_bytes", "int64_t"),
        ("progress", "engine_progress_function"),
        ("progress_context", "void*"),
        ("graphs", "int32_t"),
        ("plan_ahead", "int32_t"),
        ("check_operations", "int32_t"),
        ("synthetic", "int32_t"),
        ("num_layers", "int32_t"),
        ("memory_limit_percent", "int32_t"),
        ("device_memory_bytes", "int64_t"),
        ("kv_events", "int32_t"),
        ("step_budget_ms", "int32_t"),
        ("ranks_per_device", "int32_t"),
        ("max_draft_tokens", "int32_t"),
        ("speculate", "int32_t"),
        ("acceptance_length", "float"),
    ],
    "engine_sampling": [
        ("temperature", "float"),
        ("top_p", "float"),
        ("min_p", "float"),
        ("top_k", "int32_t"),
        ("repetition_penalty", "float"),
        ("frequency_penalty", "float"),
        ("presence_penalty", "float"),
        ("num_logprobs", "int32_t"),
        ("seed", "uint64_t"),
    ],
    "engine_request": [
        ("struct_size", "uint32_t"),
        ("prompt_length", "int32_t"),
        ("prompt", "const int32_t*"),
        ("max_tokens", "int32_t"),
        ("min_tokens", "int32_t"),
        ("sampling", "engine_sampling"),
        ("ignore_eos", "int32_t"),
        ("num_stop_tokens", "int32_t"),
        ("stop_tokens", "const int32_t*"),
        ("num_stop_sequences", "int32_t"),
        ("num_biases", "int32_t"),
        ("stop_sequence_begin", "const int32_t*"),
        ("stop_sequence_tokens", "const int32_t*"),
        ("bias_tokens", "const int32_t*"),
        ("bias_values", "const float*"),
        ("priority", "int32_t"),
        ("logits_capacity", "int32_t"),
        ("logits", "float*"),
        ("deadline_ns", "int64_t"),
        ("mask", "const uint32_t*"),
        ("num_allowed_tokens", "int32_t"),
        ("num_bad_words", "int32_t"),
        ("allowed_tokens", "const int32_t*"),
        ("bad_word_begin", "const int32_t*"),
        ("bad_word_tokens", "const int32_t*"),
        ("max_thought_tokens", "int32_t"),
        ("thought_is_open", "int32_t"),
        ("thought_begin_token", "int32_t"),
        ("thought_end_token", "int32_t"),
        ("num_prompt_logprobs", "int32_t"),
        ("num_draft_tokens", "int32_t"),
        ("num_prediction_tokens", "int32_t"),
        ("draft_tokens", "const int32_t*"),
        ("prediction_tokens", "const int32_t*"),
        ("draft_logits", "float*"),
    ],
    "engine_event": [
        ("request_id", "uint64_t"),
        ("kind", "int32_t"),
        ("finish_reason", "int32_t"),
        ("status", "int32_t"),
        ("token_id", "int32_t"),
        ("index", "int32_t"),
        ("prompt_tokens", "int32_t"),
        ("cached_tokens", "int32_t"),
        ("num_logprobs", "int32_t"),
        ("logprob", "float"),
        ("top_ids", "int32_t", MAX_LOGPROBS),
        ("top_logprobs", "float", MAX_LOGPROBS),
        ("time_ns", "int64_t"),
        ("started_ns", "int64_t"),
        ("num_draft_tokens", "int32_t"),
        ("num_accepted_tokens", "int32_t"),
        ("num_predicted_tokens", "int32_t"),
        ("num_drafts", "int32_t"),
        ("drafts", "int32_t", MAX_DRAFT_TOKENS),
        ("message", "char", EVENT_MESSAGE_CAPACITY),
    ],
    "engine_kv_event": [
        ("hash", "uint64_t"),
        ("parent_hash", "uint64_t"),
        ("kind", "int32_t"),
        ("has_parent", "int32_t"),
    ],
    "engine_mask": [
        ("request_id", "uint64_t"),
        ("words", "const uint32_t*"),
        ("index", "int32_t"),
        ("num_drafts", "int32_t"),
        ("draft_token", "int32_t"),
    ],
    "engine_step": [
        ("landed_ns", "int64_t"),
        ("device_ns", "int64_t"),
        ("plan_ns", "int64_t"),
        ("launch_ns", "int64_t"),
        ("num_tokens", "int32_t"),
        ("num_decode_tokens", "int32_t"),
        ("num_sample_rows", "int32_t"),
        ("owned_pages", "int32_t"),
        ("is_graph", "int32_t"),
        ("mask_wait_ns", "int64_t"),
        ("expected_ns", "int64_t"),
    ],
    "engine_info": [
        ("struct_size", "uint32_t"),
        ("world_size", "int32_t"),
        ("device", "char", 128),
        ("architecture", "char", 64),
        ("vocab_size", "int32_t"),
        ("hidden_size", "int32_t"),
        ("num_layers", "int32_t"),
        ("num_experts", "int32_t"),
        ("max_batch", "int32_t"),
        ("max_seq", "int32_t"),
        ("page_size", "int32_t"),
        ("kv_dtype", "int32_t"),
        ("expert_layout", "int32_t"),
        ("max_step_tokens", "int32_t"),
        ("total_pages", "int32_t"),
        ("free_pages", "int32_t"),
        ("cached_pages", "int32_t"),
        ("owned_pages", "int32_t"),
        ("live_requests", "int32_t"),
        ("waiting_requests", "int32_t"),
        ("preempted_requests", "int32_t"),
        ("is_usable", "int32_t"),
        ("num_parameters", "int64_t"),
        ("checkpoint_bytes", "int64_t"),
        ("weight_bytes", "int64_t"),
        ("kv_bytes", "int64_t"),
        ("workspace_bytes", "int64_t"),
        ("kv_bytes_per_token", "int64_t"),
        ("load_ns", "int64_t"),
        ("num_steps", "int64_t"),
        ("num_prefill_tokens", "int64_t"),
        ("num_decode_tokens", "int64_t"),
        ("num_cached_tokens", "int64_t"),
        ("num_preemptions", "int64_t"),
        ("num_evictions", "int64_t"),
        ("num_finished", "int64_t"),
        ("step_ns", "int64_t"),
        ("plan_ns", "int64_t"),
        ("device_ns", "int64_t"),
        ("launch_ns", "int64_t"),
        ("num_graph_steps", "int64_t"),
        ("num_dropped_rows", "int64_t"),
        ("capture_ns", "int64_t"),
        ("graph_bytes", "int64_t"),
        ("num_graphs", "int32_t"),
        ("plans_ahead", "int32_t"),
        ("model_max_seq", "int32_t"),
        ("max_seq_from", "int32_t"),
        ("max_batch_from", "int32_t"),
        ("num_late_masks", "int64_t"),
        ("mask_wait_ns", "int64_t"),
        ("step_budget_ms", "int32_t"),
        ("step_costs_ns", "int64_t"),
        ("num_eos_tokens", "int32_t"),
        ("eos_tokens", "int32_t", MAX_EOS_TOKENS),
        ("speculate", "int32_t"),
        ("max_draft_tokens", "int32_t"),
        ("num_drafts", "int64_t"),
        ("num_draft_tokens", "int64_t"),
        ("num_accepted_tokens", "int64_t"),
        ("num_accepted_at", "int64_t", MAX_DRAFT_TOKENS),
        ("num_prediction_layers", "int32_t"),
    ],
}

FUNCTIONS = {
    "engine_default_options": ("void", "engine_options*"),
    "engine_default_request": ("void", "engine_request*"),
    "init_engine": ("glm_engine*", "const char*", "int32_t", "int32_t", "int32_t"),
    "init_engine_with": ("glm_status", "const engine_options*", "glm_engine**", "glm_message*"),
    "free_engine": ("glm_status", "glm_engine*"),
    "get_engine_info": ("glm_status", "glm_engine*", "engine_info*"),
    "engine_inspect": ("glm_status", "const char*", "engine_text**", "glm_message*"),
    "engine_plan": ("glm_status", "const engine_options*", "engine_text**", "glm_message*"),
    "engine_find_gpus": ("glm_status", "engine_text**", "glm_message*"),
    "engine_text_data": ("const char*", "const engine_text*"),
    "engine_text_size": ("int64_t", "const engine_text*"),
    "engine_text_free": ("glm_status", "engine_text*"),
    "engine_submit": (
        "glm_status",
        "glm_engine*",
        "const engine_request*",
        "uint64_t*",
        "glm_message*",
    ),
    "engine_cancel": ("glm_status", "glm_engine*", "uint64_t", "glm_message*"),
    "engine_preempt": ("glm_status", "glm_engine*", "uint64_t", "glm_message*"),
    "engine_set_masks": (
        "glm_status",
        "glm_engine*",
        "const engine_mask*",
        "int32_t",
        "glm_message*",
    ),
    "engine_poll": ("glm_status", "glm_engine*", "engine_event*", "int32_t", "int32_t*"),
    "engine_wait": ("glm_status", "glm_engine*", "int64_t"),
    "engine_event_fd": ("int32_t", "glm_engine*"),
    "engine_take_kv_events": (
        "glm_status",
        "glm_engine*",
        "engine_kv_event*",
        "int32_t*",
        "int32_t",
        "int32_t*",
    ),
    "engine_kv_event_fd": ("int32_t", "glm_engine*"),
    "engine_resize_pool": ("glm_status", "glm_engine*", "int32_t", "glm_message*"),
    "engine_take_steps": ("glm_status", "glm_engine*", "engine_step*", "int32_t", "int32_t*"),
    "engine_profile_begin": ("glm_status", "glm_engine*", "glm_message*"),
    "engine_profile_end": ("glm_status", "glm_engine*", "engine_text**", "glm_message*"),
    "engine_read_rate": ("glm_status", "glm_engine*", "double*", "glm_message*"),
    "prefill": (
        "glm_status",
        "glm_engine*",
        "const int32_t*",
        "int32_t",
        "int32_t",
        "float*",
        "engine_state**",
        "glm_message*",
    ),
    "decode_step": (
        "glm_status",
        "glm_engine*",
        "engine_state*",
        "int32_t",
        "float*",
        "glm_message*",
    ),
    "decode_tokens": (
        "glm_status",
        "glm_engine*",
        "engine_state*",
        "const int32_t*",
        "int32_t",
        "float*",
        "glm_message*",
    ),
    "run_batch_decode": (
        "glm_status",
        "glm_engine*",
        "int32_t",
        "engine_state* const*",
        "const engine_sampling*",
        "int32_t",
        "int32_t*",
        "glm_message*",
    ),
    "free_request_state": ("glm_status", "glm_engine*", "engine_state*"),
}

PROGRESS_ARGUMENTS = ("void*", "int64_t", "int64_t", "const char*")


def make_types():
    """Return the ctypes type of every C type that the tables mention, by C name."""
    types = {
        "void": None,
        "void*": ctypes.c_void_p,
        "const char*": ctypes.c_char_p,
        "char": ctypes.c_char,
        "float": ctypes.c_float,
        "double": ctypes.c_double,
        "int32_t": ctypes.c_int32,
        "uint32_t": ctypes.c_uint32,
        "int64_t": ctypes.c_int64,
        "uint64_t": ctypes.c_uint64,
        "glm_status": ctypes.c_int32,
    }
    arguments = [types[name] for name in PROGRESS_ARGUMENTS]
    types["engine_progress_function"] = ctypes.CFUNCTYPE(None, *arguments)
    for name in OPAQUE:
        types[name] = type(name, (ctypes.Structure,), {})
    for name, fields in STRUCTS.items():
        members = [member(types, *field) for field in fields]
        types[name] = type(name, (ctypes.Structure,), {"_fields_": members})
    return types


def member(types, name, c_type, length=None):
    made = resolve(types, c_type)
    return name, made if length is None else made * length


def resolve(types, c_type):
    """Return the ctypes type of a C type, pointers to known types included."""
    if c_type not in types:
        if not c_type.endswith("*"):
            raise KeyError(f"abi.py uses the C type {c_type!r}, which is not declared in any table")
        target = c_type[:-1].removesuffix(" const").removeprefix("const ")
        types[c_type] = ctypes.POINTER(resolve(types, target))
    return types[c_type]


TYPES = make_types()
Message = TYPES["glm_message"]
OptionsStruct = TYPES["engine_options"]
SamplingStruct = TYPES["engine_sampling"]
RequestStruct = TYPES["engine_request"]
MaskStruct = TYPES["engine_mask"]
StepStruct = TYPES["engine_step"]
EventStruct = TYPES["engine_event"]
KvEventStruct = TYPES["engine_kv_event"]
InfoStruct = TYPES["engine_info"]
ProgressFunction = TYPES["engine_progress_function"]
EnginePointer = resolve(TYPES, "glm_engine*")
StatePointer = resolve(TYPES, "engine_state*")
TextPointer = resolve(TYPES, "engine_text*")


def declare_functions(library):
    """Give each function of a loaded library its result and argument types."""
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = resolve(TYPES, result)
        function.argtypes = [resolve(TYPES, argument) for argument in arguments]


def as_dict(struct):
    """Turn a struct of scalars and texts into a dictionary, `struct_size` left out."""
    values = {name: getattr(struct, name) for name, *_ in struct._fields_}
    values.pop("struct_size", None)
    return {
        name: value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for name, value in values.items()
    }


def event_records(count, name="engine_event"):
    """Return an array for that many of `engine_event`, or of another, and where it lies."""
    import numpy

    records = numpy.zeros(count, record_dtype(name))
    return records, records.ctypes.data_as(ctypes.POINTER(TYPES[name]))


def record_dtype(name):
    """Return numpy's type of a struct of numbers and texts: C's offsets, texts as bytes."""
    import numpy

    struct = TYPES[name]
    fields = dict(struct._fields_)
    return numpy.dtype(
        {
            "names": list(fields),
            "formats": [field_format(made) for made in fields.values()],
            "offsets": [getattr(struct, field).offset for field in fields],
            "itemsize": ctypes.sizeof(struct),
        }
    )


def field_format(made):
    is_text = getattr(made, "_type_", None) is ctypes.c_char
    return f"S{ctypes.sizeof(made)}" if is_text else made

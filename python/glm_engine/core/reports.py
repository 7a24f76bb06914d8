"""What the engine reports about itself, checkpoints, plans and profiles, as dictionaries."""

from collections.abc import Callable
from typing import Literal, TypedDict

ShowProgress = Callable[[int, int, str], None]
SizeSource = Literal["option", "model", "default", "num_pages", "memory"]
Device = Literal["cpu", "cuda", "futhark"]
ANY_GPU: Device = "futhark"
KIND_OF_NAME: dict[str, Device] = {"CPU": "cpu", "Futhark": ANY_GPU}


def device_kind(name: str) -> Device:
    """Return the kind of a device by the name that it reports; CUDA's begins with the GPU's."""
    return KIND_OF_NAME.get(name.partition(",")[0], "cuda")


class Sizes(TypedDict):
    """The lengths that the engine chose, and what limits them."""

    max_seq: int
    max_seq_from: SizeSource
    model_max_seq: int
    max_batch: int
    max_batch_from: SizeSource


class EngineInfo(Sizes):
    """What `Engine.info` returns; `engine_info` of engine.h, its arrays cut to their lengths."""

    world_size: int
    device: str
    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_experts: int
    page_size: int
    kv_dtype: int
    expert_layout: int
    max_step_tokens: int
    total_pages: int
    free_pages: int
    cached_pages: int
    owned_pages: int
    live_requests: int
    waiting_requests: int
    preempted_requests: int
    is_usable: int
    num_parameters: int
    checkpoint_bytes: int
    weight_bytes: int
    kv_bytes: int
    workspace_bytes: int
    kv_bytes_per_token: int
    load_ns: int
    num_steps: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    num_evictions: int
    num_finished: int
    step_ns: int
    plan_ns: int
    device_ns: int
    launch_ns: int
    num_graph_steps: int
    num_dropped_rows: int
    capture_ns: int
    graph_bytes: int
    num_graphs: int
    plans_ahead: int
    num_late_masks: int
    mask_wait_ns: int
    step_budget_ms: int
    step_costs_ns: int
    eos_tokens: list[int]
    speculate: int
    max_draft_tokens: int
    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_at: list[int]
    num_prediction_layers: int


class Step(TypedDict):
    """One of `Engine.take_steps`: `engine_step` of engine.h."""

    landed_ns: int
    device_ns: int
    plan_ns: int
    launch_ns: int
    num_tokens: int
    num_decode_tokens: int
    num_sample_rows: int
    owned_pages: int
    is_graph: int
    mask_wait_ns: int
    expected_ns: int


class Operation(TypedDict):
    """The calls of one operation in a profile."""

    name: str
    num_calls: int
    nanoseconds: int


class Profile(TypedDict):
    """What `Engine.end_profile` returns."""

    num_steps: int
    operations: list[Operation]


class FoundGpus(TypedDict):
    """What `find_gpus` returns."""

    num_gpus: int
    driver: str
    device: Device


class PredictionLayer(TypedDict):
    """What a checkpoint has of the layer that predicts the token after the next."""

    prediction_layer: str
    prediction_layer_note: str


class Shard(TypedDict):
    """One file of a checkpoint."""

    file: str
    bytes: int
    num_tensors: int


class Tensor(TypedDict):
    """One tensor of a checkpoint."""

    name: str
    dtype: str
    shape: list[int]
    bytes: int
    file: str
    offset: int
    skipped: bool


class Problem(TypedDict):
    """What is wrong with a checkpoint; `file` and `tensor` are empty where none is meant."""

    file: str
    tensor: str
    message: str


class Inspection(PredictionLayer):
    """What `inspect_checkpoint` returns."""

    model_dir: str
    architecture: str
    num_layers: int
    num_parameters: int
    num_parameters_skipped: int
    checkpoint_bytes: int
    checkpoint_bytes_skipped: int
    shards: list[Shard]
    tensors: list[Tensor]
    num_problems: int
    problems: list[Problem]


class RankPlan(TypedDict):
    """The memory that one rank needs."""

    rank: int
    weight_bytes: int
    kv_bytes: int
    buffer_bytes: int
    workspace_bytes: int
    host_bytes: int
    total_bytes: int
    memory_bytes: int


class Plan(Sizes, PredictionLayer):
    """What `plan` returns."""

    model_dir: str
    architecture: str
    num_parameters: int
    num_parameters_with_nextn: int
    checkpoint_bytes: int
    checkpoint_bytes_with_nextn: int
    has_weights: bool
    device: Device
    world_size: int
    expert_layout: str
    max_step_tokens: int
    step_budget_ms: int
    max_draft_tokens: int
    kv_dtype: str
    kv_bytes_per_token: int
    kv_bytes_per_token_bf16: int
    page_size: int
    page_bytes: int
    num_pages: int
    tokens_of_context: int
    concurrent_requests: int
    memory_free_bytes: int
    memory_limit_bytes: int
    needed_bytes: int
    fits: bool
    reason: str
    advice: str
    buffers: dict[str, int]
    ranks: list[RankPlan]

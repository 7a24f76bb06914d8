"""What is a fact of one device kind, and no part of the contract of every backend."""

from collections.abc import Sequence
from ctypes import Structure, sizeof
from dataclasses import dataclass, replace

from glm_engine.verify.header import structs


@dataclass(frozen=True)
class Facts:
    """page_step: what a page_size is a multiple of;
    checks_indexes: whether indexes in device memory are checked; layers_first: whether the pages
    of a layer lie together, and not the layers of a page; packs_tiles: whether matrices
    have the order of native/kernels/layout.hpp; has_one_attention: whether a row has the same bits
    as a decode and as a prompt row; thread_counts: numbers of threads to compare (CUDA's host
    threads only copy)."""

    page_step: int
    checks_indexes: bool
    layers_first: bool
    packs_tiles: bool
    has_one_attention: bool
    thread_counts: Sequence[int]


CPU = Facts(
    page_step=1,
    checks_indexes=True,
    layers_first=False,
    packs_tiles=False,
    has_one_attention=True,
    thread_counts=(1, 2, 3, 7),
)
FACTS = {
    "cpu": CPU,
    "futhark": replace(CPU, checks_indexes=False, thread_counts=(1, 2)),
    "cuda": Facts(
        page_step=16,
        checks_indexes=False,
        layers_first=True,
        packs_tiles=True,
        has_one_attention=False,
        thread_counts=(1, 2),
    ),
}

WORKSPACE = {
    "max_step_tokens": 1024,
    "max_decode_rows": 256,
    "rows_per_sequence": 8,
    "max_context": 4096,
    "max_logit_rows": 256,
    "hidden_size": 12288,
    "num_heads": 24,
    "num_kv_heads": 3,
    "head_dim": 128,
    "intermediate_size": 1024,
    "moe_intermediate_size": 512,
    "num_local_experts": 160,
    "top_k": 8,
    "vocab_size": 4096,
}


def workspace_shape(world_size: int = 1) -> Structure:
    """A shape that covers every call of tests/native."""
    kind = structs()["glm_workspace_shape"]
    return kind(struct_size=sizeof(kind), world_size=world_size, **WORKSPACE)

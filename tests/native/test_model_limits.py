"""`check_model` says of a model's shapes what the operations say themselves."""

import ctypes

import pytest

from glm_engine.verify.device import (
    BF16,
    F32,
    FP8,
    GATE_UP,
    LINEAR,
    NO_SHARED_EXPERT,
    TABLE,
    BackendError,
    address,
    raise_for,
)
from glm_engine.verify.header import constants, structs

HIDDEN, HEAD_DIM, WIDTH, VOCABULARY, EXPERTS = 64, 16, 96, 128, 8
SOMEWHERE = 1 << 20


def matrix(rows: int, columns: int, dtype: int = BF16, role: int = LINEAR):
    """A matrix whose memory nobody reads, because no row is asked for."""
    return structs()["glm_matrix"](dtype, role, rows, columns, SOMEWHERE, SOMEWHERE, None)


def cache_of(device, head_dim: int = HEAD_DIM, num_kv_heads: int = 2, dtype: int | None = None):
    chosen = device.info.default_kv_dtype if dtype is None else dtype
    page = device.page_size(1)
    return structs()["glm_kv_cache"](chosen, 1, 1, page, num_kv_heads, head_dim, SOMEWHERE)


class Shape:
    """A sound model's shape; `put` changes a part of it."""

    def __init__(self, device):
        self.fields = {"num_heads": 8, "rotary_dim": 8, "vocab_size": VOCABULARY, "top_k": 2}
        self.fields |= {"world_size": 1, "num_local_experts": EXPERTS, "merges_shared_expert": 0}
        self.parts = {
            "cache": cache_of(device),
            "embedding": matrix(VOCABULARY, HIDDEN, role=TABLE),
            "head": matrix(VOCABULARY, HIDDEN),
            "qkv": matrix(12 * HEAD_DIM, HIDDEN),
            "output": matrix(HIDDEN, 8 * HEAD_DIM, FP8),
            "gate_up": matrix(2 * WIDTH, HIDDEN, role=GATE_UP),
            "down": matrix(HIDDEN, WIDTH),
            "router": matrix(EXPERTS, HIDDEN),
            "experts_gate_up": matrix(2 * WIDTH, HIDDEN, role=GATE_UP),
            "experts_down": matrix(HIDDEN, WIDTH),
            "joint": matrix(HIDDEN, 2 * HIDDEN, FP8),
        }

    def put(self, **changes):
        for name, value in changes.items():
            (self.fields if name in self.fields else self.parts)[name] = value
        return self

    def struct(self):
        kind = structs()["glm_model_shape"]
        pointers = {name: address(part) for name, part in self.parts.items()}
        return kind(struct_size=ctypes.sizeof(kind), **self.fields, **pointers)


def check(backend, shape: Shape) -> None:
    message, struct = structs()["glm_message"](), shape.struct()
    raise_for(backend.table.check_model(address(struct), address(message)), message)


def refused(call, *arguments, **fields) -> str:
    with pytest.raises(BackendError) as caught:
        call(*arguments, **fields)
    return caught.value.text


def heads(cache, num_heads: int = 8) -> dict:
    return {"num_heads": num_heads, "cache": cache, "scale": 1.0}


def routing(router, top_k: int = 2) -> dict:
    return {"top_k": top_k, "router": router, "num_tokens": 0}


def mixture(shape: Shape, top_k: int, num_experts: int) -> dict:
    parts = shape.parts
    shared = shape.fields["merges_shared_expert"]
    return {
        "top_k": top_k,
        "num_local_experts": num_experts,
        "shared_expert_id": num_experts if shared else NO_SHARED_EXPERT,
        "gate_up": parts["experts_gate_up"],
        "down": parts["experts_down"],
        "shared_gate_up": parts["gate_up"],
        "shared_down": parts["down"],
        "gate_up_stride": 1 << 40,
        "down_stride": 1 << 40,
    }


def past_heads(device, shape):
    cache = cache_of(device, head_dim=320)
    return shape.put(cache=cache), "attention", heads(cache)


def past_group(device, shape):
    cache = cache_of(device, num_kv_heads=1)
    return shape.put(cache=cache, num_heads=17), "attention", heads(cache, 17)


def past_experts(_device, shape):
    router = matrix(257, HIDDEN)
    return shape.put(router=router, num_local_experts=1), "route", routing(router)


def past_choices(_device, shape):
    router = matrix(64, HIDDEN)
    return shape.put(router=router, top_k=33), "route", routing(router, 33)


def past_shared(_device, shape):
    router = matrix(256, HIDDEN)
    shape.put(router=router, num_local_experts=256, merges_shared_expert=1)
    return shape, "experts", mixture(shape, 3, 256)


def past_rows(_device, shape):
    table = matrix(VOCABULARY, 65537, role=TABLE)
    return shape.put(embedding=table), "embed", {"id_stride": 1, "table": table}


def past_attended(_device, shape):
    wide = matrix(HIDDEN, 65537, FP8)
    table = matrix(VOCABULARY, 65537, role=TABLE)
    return shape.put(output=wide), "embed", {"id_stride": 1, "table": table}


def past_gated(_device, shape):
    return shape.put(down=matrix(HIDDEN, 65537)), "swiglu_quantise", {"width": 65537}


def past_vocabulary(_device, shape):
    return shape.put(vocab_size=196609), "sample", {"vocab_size": 196609}


def past_head(_device, shape):
    head = matrix(VOCABULARY, HIDDEN, FP8)
    return shape.put(head=head), "logits", {"head": head}


def past_router(_device, shape):
    router = matrix(EXPERTS, HIDDEN, FP8)
    return shape.put(router=router), "route", routing(router)


def past_table(_device, shape):
    table = matrix(VOCABULARY, HIDDEN, FP8, TABLE)
    return shape.put(embedding=table), "embed", {"id_stride": 1, "table": table}


def float32_linear(_device, shape):
    qkv = matrix(12 * HEAD_DIM, HIDDEN, F32)
    return shape.put(qkv=qkv), "linear", {"matrix": qkv}


def float32_head(_device, shape):
    head = matrix(VOCABULARY, HIDDEN, F32)
    return shape.put(head=head), "logits", {"head": head}


def float32_joint(_device, shape):
    joint = matrix(HIDDEN, 2 * HIDDEN, F32)
    return shape.put(joint=joint), "linear", {"matrix": joint}


def past_joint(_device, shape):
    return shape.put(joint=matrix(HIDDEN, 65538, FP8)), "quantise", {"width": 65538}


def float32_experts(_device, shape):
    gate_up = matrix(2 * WIDTH, HIDDEN, F32, GATE_UP)
    shape.put(experts_gate_up=gate_up, experts_down=matrix(HIDDEN, WIDTH, F32))
    return shape, "experts", mixture(shape, 2, EXPERTS)


EVERYWHERE = [past_head, past_router, past_table]
ON_GPUS = [
    past_heads,
    past_group,
    past_experts,
    past_choices,
    past_shared,
    past_rows,
    past_attended,
    past_gated,
    past_vocabulary,
    float32_linear,
    float32_head,
    float32_experts,
    float32_joint,
    past_joint,
]


def test_a_sound_shape(backend, device):
    check(backend, Shape(device))
    for absent in (("router", "experts_gate_up", "experts_down"), ("joint",)):
        shape = Shape(device)
        shape.parts = {name: part for name, part in shape.parts.items() if name not in absent}
        check(backend, shape)


def compare(backend, device, case) -> None:
    shape, operation, fields = case(device, Shape(device))
    given = {
        name: address(value) if isinstance(value, ctypes.Structure) else value
        for name, value in fields.items()
    }
    _, _, of_operation = refused(device.run, operation, **given).partition(": ")
    _, _, of_check = refused(check, backend, shape).partition(": ")
    assert of_check == of_operation


@pytest.mark.parametrize("case", EVERYWHERE, ids=lambda case: case.__name__)
def test_operations_refuse_in_the_same_words(backend, device, case):
    compare(backend, device, case)


@pytest.mark.parametrize("case", ON_GPUS, ids=lambda case: case.__name__)
def test_operations_of_gpus_refuse_in_the_same_words(backend, device, case):
    if backend.kind != "cuda":
        pytest.skip("these are limits of GPUs: --device-kind cuda")
    compare(backend, device, case)


def test_pages_that_the_device_does_not_keep(backend, device):
    foreign = F32 if backend.kind == "cuda" else BF16
    cache = cache_of(device, dtype=foreign)
    assert "KV cache: the " in refused(check, backend, Shape(device).put(cache=cache))
    with pytest.raises(BackendError):
        device.page_bytes(cache)


def test_unknown_size_of_the_struct(backend, device):
    message = structs()["glm_message"]()
    struct = Shape(device).struct()
    struct.struct_size -= 8
    status = backend.table.check_model(address(struct), address(message))
    assert status == constants()["GLM_INVALID_ARGUMENT"]
    assert "struct_size: expected" in message.text.decode()

"""Operations on rows: embedding, norm, quantisation, SwiGLU, norm with RoPE."""

from ctypes import Structure

import torch

from glm_engine.verify.device import BF16, TABLE
from tools.bench.kernels import library
from tools.bench.kernels.case import COPY, Call, Case, Library, num_sets
from tools.bench.kernels.device import KernelDevice, struct
from tools.bench.kernels.models import HEAD_DIM, PAGE_SIZE, ROTARY_DIM, Model


def code_output(num_tokens: int, width: int) -> tuple[Structure, object]:
    """(glm_activation_output of codes alone, its tensors)."""
    codes = torch.empty(num_tokens, width, dtype=torch.uint8, device="cuda")
    scale = torch.empty(num_tokens, device="cuda")
    return struct("activation_output", plain=None, codes=codes, row_scale=scale), (codes, scale)


def sets_of(num_tokens: int, bytes_of_a_set: float, is_decode: bool) -> range:
    """Decode rows come from the cache, where the kernel before left them; others rotate."""
    return range(1 if is_decode else num_sets(bytes_of_a_set * num_tokens))


def quantise(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, size = model.query_width, 3 * num_tokens * model.query_width
    sets = sets_of(num_tokens, 3 * width, is_decode)
    outputs = [code_output(num_tokens, width) for _ in sets]
    calls: list[Call] = [
        device.call(
            "quantise",
            num_tokens=num_tokens,
            width=width,
            codes=output.codes,
            row_scale=output.row_scale,
            input=library.bf16(num_tokens, width),
        )
        for output, _ in outputs
    ]
    return Case("quantise", str(width), num_tokens, size, calls, 0, COPY, keep=outputs)


def reduce_add_norm_quantise(
    device: KernelDevice, model: Model, num_tokens: int, is_decode: bool
) -> Case:
    width, weight = model.hidden_size, torch.ones(model.hidden_size, device="cuda")
    sets = sets_of(num_tokens, 7 * width, is_decode)
    outputs = [code_output(num_tokens, width) for _ in sets]
    calls: list[Call] = [
        device.call(
            "reduce_add_norm_quantise",
            num_tokens=num_tokens,
            hidden_size=width,
            epsilon=1e-5,
            residual=library.bf16(num_tokens, width),
            delta=library.bf16(num_tokens, width) * 1e-3,
            weight=weight,
            output=output,
        )
        for output, _ in outputs
    ]
    name, size = "reduce_add_norm_quantise", 7 * num_tokens * width
    beside = [library.add_and_norm(num_tokens, width) for _ in sets]
    peer = Library("add, rms_norm (no codes)", beside)
    return Case(name, str(width), num_tokens, size, calls, 0, COPY, peer, outputs)


def swiglu_quantise(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width = model.moe_intermediate_size
    sets = sets_of(num_tokens, 5 * width, is_decode)
    outputs = [code_output(num_tokens, width) for _ in sets]
    calls: list[Call] = [
        device.call(
            "swiglu_quantise",
            num_tokens=num_tokens,
            width=width,
            gate_up=library.bf16(num_tokens, 2 * width),
            output=output,
        )
        for output, _ in outputs
    ]
    name, size = "swiglu_quantise", 5 * num_tokens * width
    peer = Library("silu, mul (no codes)", [library.gated(num_tokens, width) for _ in sets])
    return Case(name, str(width), num_tokens, size, calls, 0, COPY, peer, outputs)


def embed(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, vocab = model.hidden_size, model.vocab_size
    table, tensors = device.matrix(BF16, TABLE, vocab, width)
    values = tensors[0].view(torch.bfloat16)[: vocab * width].view(vocab, width)
    calls: list[Call] = [
        device.call(
            "embed",
            num_tokens=num_tokens,
            id_stride=1,
            token_ids=torch.randint(0, vocab, (num_tokens,), dtype=torch.int32, device="cuda"),
            table=table,
            residual=library.bf16(num_tokens, width),
        )
        for _ in sets_of(num_tokens, 4 * width, is_decode)
    ]
    peer = Library("index_select", [library.looked_up(num_tokens, values) for _ in calls])
    size = 4 * num_tokens * width
    return Case("embed", str(width), num_tokens, size, calls, 0, COPY, peer, [tensors])


def norm_rope_call(
    device: KernelDevice, model: Model, num_tokens: int
) -> tuple[Call, Call, torch.Tensor]:
    """(call, what the library does with the same q and k, memory)."""
    cache, pages = device.kv_cache(model, -(-num_tokens // PAGE_SIZE))
    angles = torch.rand(num_tokens, ROTARY_DIM // 2, device="cuda")
    places = torch.randperm(num_tokens, device="cuda").to(torch.int32)
    qkv, query = (library.bf16(num_tokens, w) for w in (model.qkv_width, model.query_width))
    weight = torch.ones(HEAD_DIM, device="cuda")
    call = device.call(
        "norm_rope_store",
        num_tokens=num_tokens,
        num_heads=model.num_heads,
        rotary_dim=ROTARY_DIM,
        epsilon=1e-5,
        query_norm=weight,
        key_norm=weight,
        cosine=angles,
        sine=angles,
        positions=places,
        slots=places,
        qkv=qkv,
        query=query,
        cache=cache,
    )
    normed = (num_tokens, model.num_heads + model.num_kv_heads, HEAD_DIM)
    return call, library.head_norm(*normed), pages


def norm_rope_store(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    size = 4 * num_tokens * model.qkv_width
    made = [
        norm_rope_call(device, model, num_tokens)
        for _ in sets_of(num_tokens, 4 * model.qkv_width, is_decode)
    ]
    calls, beside, keep = (list(each) for each in zip(*made, strict=True))
    heads = f"{model.num_heads}+2x{model.num_kv_heads} heads"
    peer = Library("rms_norm of q and k alone", beside)
    return Case("norm_rope_store", heads, num_tokens, size, calls, 0, COPY, peer, keep)

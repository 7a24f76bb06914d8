"""Operations on rows: embedding, norm, quantisation, SwiGLU, norm with RoPE, sampling."""

import torch

from tests.native.backend import BF16, TABLE, rows, structs
from tools.bench.kernels import library
from tools.bench.kernels.case import COPY, Case, Library, num_sets
from tools.bench.kernels.device import KernelDevice, struct
from tools.bench.kernels.models import HEAD_DIM, PAGE_SIZE, ROTARY_DIM, Model


def kind_of(num_tokens: int, is_decode: bool):
    return rows(num_tokens, num_tokens if is_decode else 0)


def code_output(num_tokens: int, width: int, plain: torch.Tensor | None = None):
    """(glm_activation_output, its tensors)."""
    codes = torch.empty(num_tokens, width, dtype=torch.uint8, device="cuda")
    scale = torch.empty(num_tokens, device="cuda")
    made = struct("activation_output", plain=plain, codes=codes, row_scale=scale)
    return made, (plain, codes, scale)


def sets_of(num_tokens: int, bytes_of_a_set: float, is_decode: bool) -> range:
    """Decode rows come from the cache, where the kernel before left them; others rotate."""
    return range(1 if is_decode else num_sets(bytes_of_a_set * num_tokens))


def quantise(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, keep, calls = model.query_width, [], []
    for _ in sets_of(num_tokens, 3 * width, is_decode):
        output, tensors = code_output(num_tokens, width)
        given = library.bf16(num_tokens, width)
        keep += [given, tensors]
        calls.append(
            device.call(
                "quantise",
                rows=kind_of(num_tokens, is_decode),
                width=width,
                input=given,
                codes=output.codes,
                row_scale=output.row_scale,
            )
        )
    return Case(
        "quantise", str(width), num_tokens, 3 * num_tokens * width, calls, 0, COPY, keep=keep
    )


def add_norm_quantise(device, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, calls, beside, keep = model.hidden_size, [], [], []
    weight = torch.ones(width, device="cuda")
    for _ in sets_of(num_tokens, 7 * width, is_decode):
        output, tensors = code_output(num_tokens, width)
        residual, delta = library.bf16(num_tokens, width), library.bf16(num_tokens, width) * 1e-3
        keep += [residual, delta, tensors]
        fields = {"hidden_size": width, "epsilon": 1e-5, "weight": weight, "output": output}
        kind = kind_of(num_tokens, is_decode)
        fields |= {"residual": residual, "delta": delta, "rows": kind}
        calls.append(device.call("add_norm_quantise", **fields))
        beside.append(library.add_and_norm(num_tokens, width))
    name, size = "add_norm_quantise", 7 * num_tokens * width
    peer = Library("add, rms_norm (no codes)", beside)
    return Case(name, str(width), num_tokens, size, calls, 0, COPY, peer, keep)


def swiglu_quantise(device, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, calls, beside, keep = model.moe_intermediate_size, [], [], []
    for _ in sets_of(num_tokens, 5 * width, is_decode):
        output, tensors = code_output(num_tokens, width)
        gate_up = library.bf16(num_tokens, 2 * width)
        keep += [gate_up, tensors]
        kind = kind_of(num_tokens, is_decode)
        fields = {"rows": kind, "width": width, "gate_up": gate_up, "output": output}
        calls.append(device.call("swiglu_quantise", **fields))
        beside.append(library.gated(num_tokens, width))
    name, size = "swiglu_quantise", 5 * num_tokens * width
    peer = Library("silu, mul (no codes)", beside)
    return Case(name, str(width), num_tokens, size, calls, 0, COPY, peer, keep)


def embed(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    width, vocab = model.hidden_size, model.vocab_size
    table, tensors = device.matrix(BF16, TABLE, vocab, width)
    values = tensors[0].view(torch.bfloat16)[: vocab * width].view(vocab, width)
    calls, keep = [], [table, tensors]
    for _ in sets_of(num_tokens, 4 * width, is_decode):
        ids = torch.randint(0, vocab, (num_tokens,), dtype=torch.int32, device="cuda")
        residual = library.bf16(num_tokens, width)
        keep += [ids, residual]
        kind = kind_of(num_tokens, is_decode)
        fields = {"rows": kind, "token_ids": ids, "table": table, "residual": residual}
        calls.append(device.call("embed", **fields))
    peer = Library("embedding", [library.looked_up(num_tokens, values) for _ in calls])
    size = 4 * num_tokens * width
    return Case("embed", str(width), num_tokens, size, calls, 0, COPY, peer, keep)


def norm_rope_store(device: KernelDevice, model: Model, num_tokens: int, is_decode: bool) -> Case:
    num_pages = -(-num_tokens // PAGE_SIZE)
    shape = (BF16, 1, num_pages, PAGE_SIZE, model.num_kv_heads, HEAD_DIM)
    cache = structs()["glm_kv_cache"](*shape)
    pages = torch.empty(num_pages * device.page_bytes(cache), dtype=torch.uint8, device="cuda")
    cache.data = pages.data_ptr()
    angles = torch.rand(num_tokens, ROTARY_DIM // 2, device="cuda")
    places = torch.randperm(num_tokens, device="cuda").to(torch.int32)
    qkv, query = (library.bf16(num_tokens, w) for w in (model.qkv_width, model.query_width))
    weight = torch.ones(HEAD_DIM, device="cuda")
    call = device.call(
        "norm_rope_store",
        rows=kind_of(num_tokens, is_decode),
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
    size = 4 * num_tokens * model.qkv_width
    keep = [cache, pages, angles, places, qkv, query, weight]
    heads = f"{model.num_heads}+2x{model.num_kv_heads} heads"
    return Case("norm_rope_store", heads, num_tokens, size, [call], 0, COPY, keep=keep)

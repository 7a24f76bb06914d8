"""Operations on sequences: attention and its cache, sampling, and the state between steps."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from glm_engine.verify import logical
from glm_engine.verify import operations as op
from glm_engine.verify.device import FP8, Device
from glm_engine.verify.drafts import begin_drafts, keep_drafts, random_rows
from glm_engine.verify.drawing import Controls, draw, varied_controls
from glm_engine.verify.measures import CHOICES, EXACT, FLOAT32, ROUNDED, Answer
from glm_engine.verify.model_shape import MOST_CONTEXT, ModelShape
from glm_engine.verify.paging import NO_SCALES, HeadScales, Norms, PagedCache, Segment
from glm_engine.verify.row_cases import ROWS
from glm_engine.verify.steps import PROMPT, accept, begin, random_acceptance, random_step

PAGE_SIZE = 16
NUM_PAGES = 72
NUM_LAYERS, LAYER = 2, 1
CONTEXTS = (300, 1, 16, 17, 64, 65, 128, 513, 1000)
PROMPTS = {1: ((40, 1),), 7: ((300, 7),), 33: ((33, 33),), 130: ((40, 20), (1000, 110))}
KEY_SCALE, VALUE_SCALE = 0.5, 2.0
NO_NORMS = Norms(None, None)
NUM_LOGPROBS = 5
NUM_COUNT_ROWS = 3
MOST_DRAFTS = 4
UNUSED_PAGE = 0


def pages_of_one_sequence() -> tuple[int, ...]:
    """All pages but one, in another order than that of the memory."""
    order = logical.generator("pages").permutation(np.arange(UNUSED_PAGE + 1, NUM_PAGES))
    return tuple(order.tolist())


def heads_text(shape: ModelShape) -> str:
    heads = shape.heads
    return f"{heads.num_heads}/{heads.num_kv_heads} heads of {heads.head_dim}"


def stored_sequence(device: Device, shape: ModelShape, is_fp8: bool) -> PagedCache:
    """A cache of keys and values that E4M3 represents, in every page of the sequence."""
    heads, scales = shape.heads, NO_SCALES
    if is_fp8:
        ones = np.ones((NUM_LAYERS, heads.num_kv_heads), np.float32)
        scales = HeadScales(KEY_SCALE * ones, VALUE_SCALE * ones)
    dtype = FP8 if is_fp8 else None
    cache = PagedCache(device, heads, NUM_LAYERS, NUM_PAGES, PAGE_SIZE, dtype, scales)
    length, width = (NUM_PAGES - 1) * cache.page_size, heads.num_kv_heads * heads.head_dim
    rng = logical.generator("cached", int(is_fp8))
    key, value = (logical.exact_codes(rng, length, width) for _ in range(2))
    query = np.zeros((length, shape.query_width), np.float32)
    qkv = np.concatenate([query, KEY_SCALE * key, VALUE_SCALE * value], axis=1)
    tables = op.rope_tables(device, shape.theta, shape.rotary_dim, 1)
    whole = Segment(length, length, pages_of_one_sequence())
    slots = cache.slots(whole, whole.positions())
    for begin_row in range(0, length, PAGE_SIZE * 8):
        part = slice(begin_row, begin_row + PAGE_SIZE * 8)
        positions = np.zeros(len(slots[part]), np.int32)
        cache.store(qkv[part], positions, slots[part], NO_NORMS, tables, shape.rotary_dim, LAYER)
    return cache


def attention(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """Decode and prompt rows over pages of the device's own type."""
    return attended(device, shape, is_fp8=False)


def attention_over_codes(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """The same over pages of E4M3 codes."""
    return attended(device, shape, is_fp8=True)


def attended(device: Device, shape: ModelShape, is_fp8: bool) -> Iterator[Answer]:
    cache, pages = stored_sequence(device, shape, is_fp8), pages_of_one_sequence()
    text = f"{heads_text(shape)}{', KV in FP8' if is_fp8 else ''}"
    for rows in ROWS:
        query = logical.activations(logical.generator("query", rows), rows, shape.query_width)
        lengths = [CONTEXTS[row % len(CONTEXTS)] for row in range(rows)]
        decoded = [Segment(length, 1, pages) for length in lengths]
        prompts = [Segment(length, new, pages) for length, new in PROMPTS[rows]]
        found = cache.attend(query, decoded, rows, LAYER)
        yield Answer("attention: decode rows", text, rows, found, ROUNDED)
        found = cache.attend(query, prompts, 0, LAYER)
        yield Answer("attention: prompt rows", text, rows, found, ROUNDED)


def norm_rope_store(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """The queries, and the stored keys and values as attention of fixed queries reads them."""
    text, heads = f"{heads_text(shape)}, {shape.rotary_dim} rotated", shape.heads
    tables = op.rope_tables(device, shape.theta, shape.rotary_dim, MOST_CONTEXT)
    for name, table in zip(("cosine", "sine"), tables, strict=True):
        yield Answer(f"rope_table: {name}", text, MOST_CONTEXT, table.get(), FLOAT32)
    for rows in ROWS:
        rng = logical.generator("norm_rope_store", rows)
        qkv = logical.activations(rng, rows, heads.qkv_width)
        weights = 1 + 0.1 * rng.standard_normal((2, heads.head_dim)).astype(np.float32)
        norms = Norms(weights[0], weights[1], shape.epsilon) if shape.has_qk_norm else NO_NORMS
        cache = PagedCache(device, heads, NUM_LAYERS, NUM_PAGES, PAGE_SIZE)
        stored = Segment(rows, rows, pages_of_one_sequence())
        slots = cache.slots(stored, stored.positions())
        positions = np.sort(rng.integers(0, MOST_CONTEXT, rows)).astype(np.int32)
        query = cache.store(qkv, positions, slots, norms, tables, shape.rotary_dim, LAYER)
        yield Answer("norm_rope_store: queries", text, rows, query, ROUNDED)
        asked = logical.activations(rng, rows, shape.query_width)
        found = cache.attend(asked, [stored], 0, LAYER)
        yield Answer("norm_rope_store: keys and values", text, rows, found, ROUNDED)


def pages(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """copy_pages, save_pages and restore_pages: whether each page has the bytes that it should."""
    cache = PagedCache(device, shape.heads, NUM_LAYERS, NUM_PAGES, PAGE_SIZE)
    size = (NUM_PAGES, NUM_LAYERS, cache.page_bytes // NUM_LAYERS)
    rng = logical.generator("copied")
    expected = rng.integers(0, 256, size, np.uint8)
    cache.fill(expected)
    source, target = rng.permutation(NUM_PAGES).astype(np.int32).reshape(2, -1)
    moved = {"cache": cache.pointer, "num_pages": len(source)}
    lists = {"source_pages": source.ctypes.data, "destination_pages": target.ctypes.data}
    device.run("copy_pages", **moved, **lists)
    expected[target] = expected[source]
    same = (cache.contents() == expected).all(axis=(1, 2))
    text = f"{heads_text(shape)}, {len(source)} pages"
    yield Answer("copy_pages", text, len(source), same, EXACT)
    host = np.zeros((len(source), cache.page_bytes), np.uint8)
    moved["host_data"] = host.ctypes.data
    device.run("save_pages", pages=source.ctypes.data, **moved)
    device.synchronise()
    same = (host == expected[source].reshape(host.shape)).all(axis=1)
    yield Answer("save_pages", text, len(source), same, EXACT)
    back = np.roll(source, 1)
    device.run("restore_pages", pages=back.ctypes.data, **moved)
    expected[back] = expected[source]
    same = (cache.contents() == expected).all(axis=(1, 2))
    yield Answer("restore_pages", text, len(source), same, EXACT)


def token_counts(rng: np.random.Generator, rows: int, vocab_size: int) -> np.ndarray:
    """Counts of output tokens, most of them 0, and the mark of a prompt's."""
    counts = np.maximum(rng.integers(-6, 3, (rows, vocab_size)), 0).astype(np.uint32)
    counts[rng.random((rows, vocab_size), dtype=np.float32) < 0.1] |= np.uint32(PROMPT)
    return counts


def counting(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """count_tokens of outputs, of a prompt, and after a reset."""
    counts = token_counts(logical.generator("counts"), NUM_COUNT_ROWS, shape.vocab_size)
    for rows in ROWS:
        ids = logical.generator("counted", rows).integers(0, shape.vocab_size, rows)
        for from_prompt, reset in ((0, 0), (1, 0), (0, 1)):
            placed = device.place(counts)
            device.run(
                "count_tokens",
                counts=placed,
                vocab_size=shape.vocab_size,
                count_row=NUM_COUNT_ROWS - 1,
                num_tokens=rows,
                token_ids=device.place(ids.astype(np.int32)),
                from_prompt=from_prompt,
                reset=reset,
            )
            found = device.download(placed, counts.shape, np.uint32)
            yield Answer("count_tokens", f"{shape.vocab_size} tokens", rows, found, EXACT)


def penalties(controls: Controls) -> Controls:
    return replace(controls, repetition_penalty=1.3, frequency_penalty=0.3, presence_penalty=0.4)


def sampling(device: Device, shape: ModelShape) -> Iterator[Answer]:
    """sample: greedy rows, drawn rows, rows with penalties, and log-probabilities."""
    text = f"{shape.vocab_size} tokens"
    for rows in ROWS:
        rng = logical.generator("sampling", rows)
        logits = 3 * rng.standard_normal((rows, shape.vocab_size), dtype=np.float32)
        drawn = varied_controls(rows)
        greedy = [replace(each, temperature=0.0) for each in drawn]
        best = draw(device, logits, greedy, NUM_LOGPROBS)
        yield Answer("sample: greedy", text, rows, best.token_ids, EXACT)
        found = draw(device, logits, drawn, NUM_LOGPROBS)
        yield Answer("sample: drawn", text, rows, found.token_ids[:, None], CHOICES)
        counts = token_counts(rng, rows, shape.vocab_size)
        penalised = [penalties(each) for each in greedy]
        count_rows = np.arange(rows)[::-1]
        changed = draw(device, logits, penalised, NUM_LOGPROBS, counts, count_rows)
        yield Answer("sample: penalties", text, rows, changed.token_ids, EXACT)
        for each in (best, changed):
            top = each.top_logprobs[:, :NUM_LOGPROBS]
            yield Answer("sample: log-probabilities", text, rows, top, FLOAT32)


def steps(device: Device, _shape: ModelShape) -> Iterator[Answer]:
    """begin_step and accept over sequences with drafts."""
    page_size = device.page_size(PAGE_SIZE)
    for rows in ROWS:
        begun = begin(device, random_step(logical.generator("step", rows), rows, 1, page_size))
        columns = np.stack(list(begun.values()))
        yield Answer("begin_step", f"pages of {page_size}", rows, columns, EXACT)
        rng = logical.generator("accept", rows)
        accepted = accept(device, *random_acceptance(rng, rows, MOST_DRAFTS))
        text = f"up to {MOST_DRAFTS - 1} drafts"
        states = np.stack([accepted.states[name] for name in accepted.states.dtype.names or ()])
        for part in (states, accepted.counts, accepted.sampled_ids):
            yield Answer("accept", text, rows, part, EXACT)


def drafts(device: Device, _shape: ModelShape) -> Iterator[Answer]:
    """begin_drafts and keep_drafts behind prompts and decode rows."""
    for rows in ROWS:
        rng = logical.generator("kept drafts", rows)
        given = random_rows(rng, rows, MOST_DRAFTS)
        begun = begin_drafts(device, given)
        text = f"up to {MOST_DRAFTS - 1} drafts"
        yield Answer("begin_drafts", text, rows, begun.pop("token_ids"), EXACT)
        yield Answer("begin_drafts", text, rows, np.stack(list(begun.values())), EXACT)
        kept = keep_drafts(device, given, rng.integers(-1, 1000, len(given.draft_rows)))
        states = np.stack([kept[name] for name in kept.dtype.names or ()])
        yield Answer("keep_drafts", text, rows, states, EXACT)

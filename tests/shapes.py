"""The one generator of shapes, seeds and random data that every test draws from."""

import os
from collections.abc import Iterable
from itertools import product

import numpy as np

SEED_VARIABLE = "GLM_TEST_SEED"
DEFAULT_SEED = 20470
TILE = 64
PRIME = 13

MODEL_WIDTHS = {
    "glm_4_7_hidden_over_40": 5120 // 40,
    "glm_4_7_expert_over_16": 1536 // 16,
    "glm_4_7_dense_over_64": 12288 // 64,
    "air_hidden_over_64": 4096 // 64,
    "air_expert_over_16": 1408 // 16,
}

HEAD_LAYOUTS = {
    "one_query_head": (2, 2, 64),
    "three_query_heads": (6, 2, 64),
    "glm_4_7_over_4": (24, 2, 128),
    "one_key_head": (12, 1, 128),
    "odd": (5, 1, 10),
}


def run_seed() -> int:
    """The seed of this run: GLM_TEST_SEED when it is set, a constant otherwise."""
    return int(os.environ.get(SEED_VARIABLE, DEFAULT_SEED))


def seed_note() -> str:
    return f"{SEED_VARIABLE}={run_seed()}"


def generator(*key: int | str) -> np.random.Generator:
    """A generator of its own for each key, so that a test's data never depend on test order."""
    words = [run_seed()]
    for part in key:
        words.extend(part.encode() if isinstance(part, str) else [part])
    return np.random.default_rng(words)


def counts() -> list[int]:
    """Token, row and page counts: none, one, a prime, one past a tile."""
    return [0, 1, PRIME, TILE + 1]


def positive_counts() -> list[int]:
    return [count for count in counts() if count > 0]


def widths() -> list[int]:
    """Row widths: one, a prime, one past a tile, and those of real models scaled down."""
    return [1, PRIME, TILE + 1, *MODEL_WIDTHS.values()]


def matrices() -> list[tuple[int, int]]:
    """(rows, width) pairs: every count with a few widths, every width with a few counts."""
    tall = [(rows, PRIME) for rows in counts()]
    wide = [(3, width) for width in widths()]
    return [*tall, *wide, (TILE + 1, TILE + 1)]


def wide_rows() -> list[tuple[int, int]]:
    """(rows, width): rows as wide as models have them, and widths that no vector fits."""
    return [(3, 4096), (2, 5120), (2, 12288), (2, 12289), (2, 20001), (150, 256)]


def products() -> list[tuple[int, int, int]]:
    """(num_tokens, in_features, out_features) of linear layers."""
    plain = [(*pair, TILE + 1) for pair in product(counts(), (PRIME, TILE + 1))]
    hidden = MODEL_WIDTHS["glm_4_7_hidden_over_40"]
    return [*plain, (1, 1, 1), *((3, width, hidden) for width in MODEL_WIDTHS.values())]


def head_layouts() -> list[tuple[int, int, int]]:
    """(num_heads, num_kv_heads, head_dim)."""
    return list(HEAD_LAYOUTS.values())


def ragged_batches() -> list[list[tuple[int, int]]]:
    """Lists of (num_cached_tokens, num_new_tokens), one pair a sequence."""
    return [
        [],
        [(0, 1)],
        [(0, PRIME)],
        [(TILE, 1)],
        [(0, TILE + 1), (PRIME, 1), (TILE + 1, 7), (5, 1)],
    ]


def attention_contexts() -> list[int]:
    """Context lengths on both sides of blocks of 16 tokens, tiles of 64 and 128, splits of 256."""
    return [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 130, 255, 256, 257, 300, 513, 1000]


def attention_heads() -> list[tuple[int, int, int]]:
    """(num_heads, num_kv_heads, head_dim): every group beside a usual head_dim, and head_dims
    from 1 to 256 on both sides of what kernels pad to."""
    groups = [(group, 1, 128) for group in (1, 2, 3, 5, 12, 16)]
    sizes = (1, 7, 10, 32, 63, 64, 65, 96, 127, 129, 192, 193, 256)
    return [*groups, *((6, 2, size) for size in sizes), (24, 2, 128), (12, 1, 256), (3, 3, 80)]


def shape_name(shape: Iterable[int]) -> str:
    return "x".join(str(size) for size in shape)


def hostile_rows(rows: int, width: int, *key: int | str) -> np.ndarray:
    """float32 rows of magnitudes from 1e-6 to 1e4, with zero rows and outliers among them."""
    rng = generator(rows, width, *key)
    values = rng.standard_normal((rows, width)) * 10.0 ** rng.uniform(-6, 4, (rows, 1))
    if rows > 2 and width:
        values[1] = 0.0
        values[2, rng.integers(width)] *= 100.0
    return values.astype(np.float32)

"""Weights to FP8 as compressed-tensors does it: one scale for each output channel."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from glm_engine.core.float8 import E4M3_LARGEST, encode_e4m3, round_to_bf16

REGULAR_EXPRESSION = "re:"
SCALE_OF_ZEROS = np.float32(np.finfo(np.float32).eps)


def channel_scales(weight: np.ndarray, scale_dtype: str) -> np.ndarray:
    """Scales [rows, 1] float32 of a weight [rows, columns]; rounded to BF16 for that dtype."""
    largest = np.abs(weight).max(axis=1, keepdims=True).astype(np.float32)
    scales = largest / np.float32(E4M3_LARGEST)
    if scale_dtype == "BF16":
        scales = round_to_bf16(scales)
    return np.where(scales == 0, SCALE_OF_ZEROS, scales)


def quantise_channels(weight: np.ndarray, scale_dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Codes [rows, columns] uint8 and scales [rows, 1] float32 of a float32 weight."""
    weight = np.asarray(weight, dtype=np.float32)
    scales = channel_scales(weight, scale_dtype)
    scaled = np.clip(weight / scales, -E4M3_LARGEST, E4M3_LARGEST)
    return encode_e4m3(scaled), scales


def is_ignored(module: str, ignore: Iterable[str]) -> bool:
    """Whether an ignore list names a module, exactly or by a pattern matched from its start."""
    return any(
        re.match(entry.removeprefix(REGULAR_EXPRESSION), module) is not None
        if entry.startswith(REGULAR_EXPRESSION)
        else entry == module
        for entry in ignore
    )


def quantization_config(ignore: list[str]) -> dict[str, Any]:
    """The quantization_config of a compressed-tensors float-quantized checkpoint."""
    common: dict[str, object] = {
        "actorder": None,
        "block_structure": None,
        "group_size": None,
        "num_bits": 8,
        "observer_kwargs": {},
        "symmetric": True,
        "type": "float",
    }
    activations = {**common, "dynamic": True, "observer": None, "strategy": "token"}
    weights = {**common, "dynamic": False, "observer": "minmax", "strategy": "channel"}
    return {
        "config_groups": {
            "group_0": {
                "input_activations": activations,
                "output_activations": None,
                "targets": ["Linear"],
                "weights": weights,
            }
        },
        "format": "float-quantized",
        "global_compression_ratio": None,
        "ignore": ignore,
        "kv_cache_scheme": None,
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
    }

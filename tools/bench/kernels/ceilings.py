"""What the device can do at most, measured in the same run."""

import torch

from tools.bench.kernels import library
from tools.bench.kernels.case import (
    BF16_PRODUCT,
    COPY,
    FAST,
    FP8_PRODUCT,
    HOST_COPY,
    PLAIN_COPY,
    READ,
    SIDE,
)
from tools.bench.kernels.device import KernelDevice

READ_BYTES = 3_000_000_000
COPY_BYTES = 1 << 30
HOST_BYTES = 1 << 26


def copy_rates() -> dict[str, float]:
    source = library.bf16(COPY_BYTES // 2)
    target = torch.empty_like(source)
    scaled = library.microseconds([lambda: torch.mul(source, 2.0, out=target)])
    plain = library.microseconds([library.copied(target, source)])
    return {COPY: 2e6 * COPY_BYTES / scaled, PLAIN_COPY: 2e6 * COPY_BYTES / plain}


def host_rate() -> float:
    source = torch.zeros(HOST_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty(HOST_BYTES, dtype=torch.uint8, pin_memory=True)
    return 1e6 * HOST_BYTES / library.microseconds([library.copied(target, source)])


def product_rates() -> dict[str, float]:
    codes, plain = library.fp8(SIDE, SIDE), library.bf16(SIDE, SIDE)
    products = {
        FP8_PRODUCT: library.scaled_product(SIDE, codes, fast=False),
        FAST: library.scaled_product(SIDE, codes, fast=True),
        BF16_PRODUCT: library.plain_product(SIDE, plain),
    }
    spent = {name: library.microseconds([call]) for name, call in products.items()}
    return {name: 2e6 * SIDE**3 / each for name, each in spent.items()}


def measure(device: KernelDevice) -> dict[str, float]:
    """Bytes or floating-point operations a second."""
    rates = {READ: device.read_rate(READ_BYTES), **copy_rates()}
    rates |= {HOST_COPY: host_rate(), **product_rates()}
    torch.cuda.empty_cache()
    return rates

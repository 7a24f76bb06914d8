"""What the device can do at most, measured in the same run."""

import torch

from tools.bench.kernels import library
from tools.bench.kernels.case import COPY, PRODUCT, READ
from tools.bench.kernels.device import KernelDevice

READ_BYTES = 3_000_000_000
COPY_BYTES = 1 << 30
SIDE = 8192
FAST = f"{PRODUCT}, fast accumulation"
NAMES = {
    READ: "a plain read of 3 GB",
    COPY: "a scaled copy of 1 GiB, bytes read and written",
    PRODUCT: f"_scaled_mm {SIDE}³, row scales",
    FAST: f"_scaled_mm {SIDE}³, row scales, fast accumulation",
}


def copy_rate() -> float:
    source = library.bf16(COPY_BYTES // 2)
    target = torch.empty_like(source)
    spent = library.microseconds([lambda: torch.mul(source, 2.0, out=target)])
    return 2 * COPY_BYTES / spent * 1e6


def product_rate(fast: bool) -> float:
    spent = library.microseconds([library.scaled_product(SIDE, SIDE, SIDE, fast)])
    return 2.0 * SIDE**3 / spent * 1e6


def measure(device: KernelDevice) -> dict[str, float]:
    """Bytes or floating-point operations a second."""
    rates = {READ: device.read_rate(READ_BYTES), COPY: copy_rate()}
    rates |= {PRODUCT: product_rate(False), FAST: product_rate(True)}
    torch.cuda.empty_cache()
    return rates

"""What the device can do at most, measured in the same run."""

import sys
import time
from collections.abc import Callable

import torch

from tools.bench.kernels import library
from tools.bench.kernels.case import (
    BF16_PRODUCT,
    CEILINGS,
    COPY,
    FAST,
    FP8_PRODUCT,
    HOST_COPY,
    READ,
    SIDE,
    SUSTAINED,
    Call,
)
from tools.bench.kernels.device import KernelDevice

READ_BYTES = 3_000_000_000
COPY_BYTES = 1 << 30
HOST_BYTES = 1 << 26
SUSTAINED_SECONDS, REST_SECONDS = 1.0, 1.0


def scaled_copy_rate() -> float:
    source = library.bf16(COPY_BYTES // 2)
    target = torch.empty_like(source)
    spent = library.microseconds([lambda: torch.mul(source, 2.0, out=target)])
    return 2e6 * COPY_BYTES / spent


def host_rate() -> float:
    source = torch.zeros(HOST_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty(HOST_BYTES, dtype=torch.uint8, pin_memory=True)
    return 1e6 * HOST_BYTES / library.microseconds([library.copied(target, source)])


def product_rate(product: Call) -> float:
    return 2e6 * SIDE**3 / library.microseconds([product])


def fp8_products() -> library.Products:
    return library.scaled_products(SIDE, library.fp8(SIDE, SIDE))


def sustained_rate() -> float:
    """When the clock has come down to what the power allows."""
    product = fp8_products().exact
    end = time.monotonic() + SUSTAINED_SECONDS
    while time.monotonic() < end:
        library.microseconds([product])
    return product_rate(product)


def rate_or_none(name: str, work: Callable[[], float]) -> float | None:
    """A ceiling that fails is named on standard error; shares of it stay empty."""
    try:
        return work()
    except RuntimeError as error:
        print(f"kernels: {CEILINGS[name]}: {error}", file=sys.stderr, flush=True)
        return None


def measure(device: KernelDevice) -> dict[str, float | None]:
    """Bytes or floating-point operations a second; then a rest, until the clock is up again."""
    works = {
        READ: lambda: device.read_rate(READ_BYTES),
        COPY: scaled_copy_rate,
        HOST_COPY: host_rate,
        FP8_PRODUCT: lambda: product_rate(fp8_products().exact),
        FAST: lambda: product_rate(fp8_products().fast),
        BF16_PRODUCT: lambda: product_rate(library.plain_product(SIDE, library.bf16(SIDE, SIDE))),
        SUSTAINED: sustained_rate,
    }
    rates = {name: rate_or_none(name, work) for name, work in works.items()}
    torch.cuda.empty_cache()
    time.sleep(REST_SECONDS)
    return rates

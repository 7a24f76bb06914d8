"""The version: stated here, and of a wheel with what its metadata adds (`+cpu`: no CUDA device)."""

from importlib import metadata

from glm_engine.core.layout import IS_WHEEL

VERSION = "0.2.0"
DISTRIBUTION = "glm-engine"


def version() -> str:
    """Return the version of the checkout that this is, or of the installed wheel."""
    return metadata.version(DISTRIBUTION) if IS_WHEEL else VERSION

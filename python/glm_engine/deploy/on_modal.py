"""Access to Modal's package: whether it is installed, and the settings that this project pins."""

import importlib
import os
from importlib import util
from types import ModuleType

from glm_engine.core.errors import GlmError
from glm_engine.core.layout import IS_WHEEL

BUILDER_VERSION = "2025.06"
BUILDER_VARIABLE = "MODAL_IMAGE_BUILDER_VERSION"
WAY_TO_MODAL = (
    'install it with `pip install "glm-engine[modal]"`'
    if IS_WHEEL
    else "run the command with `tools/develop --with modal`, or `pip install modal`"
)


class ModalError(GlmError):
    """Modal's package, token, service or network is missing, or Modal refused."""


def is_installed() -> bool:
    """Say whether Modal's package can be imported."""
    return util.find_spec("modal") is not None


def module(name: str) -> ModuleType:
    """Return a module of this project that imports Modal's package.

    The version of Modal's image builder is pinned unless the user's environment sets one.
    """
    if not is_installed():
        raise ModalError(f"the modal package is not installed: {WAY_TO_MODAL}, or use --local")
    os.environ.setdefault(BUILDER_VARIABLE, BUILDER_VERSION)
    return importlib.import_module(name)

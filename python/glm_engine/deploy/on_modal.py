"""The way to Modal's package: whether it is here, and the settings that this project pins."""

import importlib
import os
from importlib import util

from glm_engine.errors import GlmError

BUILDER_VERSION = "2025.06"
BUILDER_VARIABLE = "MODAL_IMAGE_BUILDER_VERSION"


class ModalError(GlmError):
    """Modal's package, token, service or network is not there, or it refused."""


def module(name):
    """Return a module of this project that imports Modal's package.

    The version of the builder of images is pinned, unless the user's own setting states one.
    """
    if util.find_spec("modal") is None:
        raise ModalError(
            "the package modal is not installed: `pip install 'glm-engine[modal]'`, "
            "or `tools/develop --with modal` in a checkout; --local needs none"
        )
    os.environ.setdefault(BUILDER_VARIABLE, BUILDER_VERSION)
    return importlib.import_module(name)

"""What a wheel holds beside the Python package, for hatchling, which pyproject.toml leads here."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

from glm_engine.version import VERSION

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "glm_engine"
ALWAYS = (
    "build/engine.so",
    "build/libglm_cuda_plan.so",
    "checkpoints/capitals",
    "native/include/glm/backend.h",
    "native/include/glm/engine.h",
    "native/include/glm/status.h",
)
OF_DEVICE = {
    "cpu": ("build/libglm_cpu.so",),
    "cuda": (
        "build/libglm_cuda.so",
        "build/libglm_futhark.so",
        "build/libcudawrap.so",
        "build/libcublaswrap.so",
        "build/libncclwrap.so",
    ),
}
VARIABLE = "GLM_WHEEL_DEVICES"
DEVICES = os.environ.get(VARIABLE, "cpu").split()
TAG = "py3-none-linux_x86_64"


def release_version(devices: Collection[str]) -> str:
    """The version; a wheel without the CUDA device says so, and PyPI takes no such version."""
    return VERSION if "cuda" in devices else f"{VERSION}+cpu"


class WheelContents(BuildHookInterface[BuilderConfig]):
    """Puts libraries and checkpoint into the package, at the places that they have at the top."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        wanted = [*ALWAYS, *(name for device in DEVICES for name in OF_DEVICE[device])]
        missing = [name for name in wanted if not (ROOT / name).exists()]
        if missing:
            raise FileNotFoundError(
                f"{', '.join(missing)}: not built; `tools/develop scons wheel` builds them first"
            )
        build_data["tag"] = TAG
        build_data["pure_python"] = False
        build_data["force_include"] |= {str(ROOT / name): f"{PACKAGE}/{name}" for name in wanted}

"""The image: a CUDA base and the wheel, which is sent, built inside or installed by name."""

import modal

from glm_engine.core.layout import ROOT
from glm_engine.deploy.deployment import RELEASE, Deployment
from glm_engine.deploy.source import is_left_out

BASE = "nvidia/cuda:13.0.2-base-ubuntu24.04"
PYTHON = "3.12"
WHEELS = "/wheels"
SOURCE = "/glm-engine"
BUILD_VOLUME = "glm-build"
BUILD_CACHE = "/build-cache"
COMPILERS = ("g++", "gcc")
BUILD = f"cd {SOURCE} && tools/develop --with cuda scons wheel"


def make_image(deployment: Deployment) -> modal.Image:
    """Return the image whose Python has the wheel installed."""
    base = modal.Image.from_registry(BASE, add_python=PYTHON).entrypoint([])
    if deployment.ship == "source":
        return with_source(base)
    if deployment.wheel is None:
        return base.run_commands(install(RELEASE))
    path = f"{WHEELS}/{deployment.wheel.name}"
    brought = base.add_local_file(deployment.wheel, path, copy=True)
    return brought.run_commands(install(path))


def with_source(base: modal.Image) -> modal.Image:
    """Build the wheel by the SCons graph of the checkout, with its cache in a volume."""
    cache = modal.Volume.from_name(BUILD_VOLUME, create_if_missing=True)
    brought = base.apt_install(*COMPILERS).add_local_dir(
        ROOT, SOURCE, copy=True, ignore=is_left_out
    )
    built = brought.env({"GLM_BUILD_CACHE": BUILD_CACHE}).run_commands(
        BUILD, volumes={BUILD_CACHE: cache}
    )
    return built.run_commands(install(f"{SOURCE}/build/wheel/*.whl"))


def install(wheel: str) -> str:
    return f"python -m pip install --no-cache-dir {wheel}"

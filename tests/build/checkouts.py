"""Checkouts for the tests of the build: a small one of a few lines, and a copy of this one."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from lowered import LOWERINGS

from terra import TERRA

ROOT = Path(__file__).resolve().parents[2]
NATIVE_FOLDERS = re.compile(r"NativeSources\(([^)]*)\)")
NAMED_SOURCE = re.compile(r'"#([^"*]+\.cpp)"')
EXPLAINED = re.compile(r"^scons: (?:re)?building `([^']+)' because", re.M)
SMALL_SOURCES = {
    "futhark/entries.fut": (
        'import "double"\n\nentry doubled [n] (xs: [n]f32) : [n]f32 = map double xs\n'
    ),
    "futhark/double.fut": "def double (x: f32) : f32 = x * 2\n",
    "futhark/lowered/kernels_cpu.c": (
        '#include "kernels_cpu.h"\n#include <stdlib.h>\n'
        "struct futhark_context_config *futhark_context_config_new(void) { return malloc(1); }\n"
        "void futhark_context_config_free(struct futhark_context_config *made) { free(made); }\n"
    ),
    "futhark/lowered/kernels_cpu.h": (
        "#pragma once\n#include <stddef.h>\nstruct futhark_context_config;\n"
        "struct futhark_context_config *futhark_context_config_new(void);\n"
        "void futhark_context_config_free(struct futhark_context_config *made);\n"
    ),
    "futhark/lowered/kernels_cpu.json": "{}\n",
    "futhark/lowered/kernels_cuda.c": "int kernels(void);\nint kernels(void) { return 1; }\n",
    "futhark/lowered/kernels_cuda.h": "#pragma once\nint kernels(void);\n",
    "futhark/lowered/kernels_cuda.json": "{}\n",
    "native/include/glm/answer.h": "#pragma once\n#define GLM_ANSWER 42\n",
    "native/backends/cpu/open.c": (
        '#include "glm/answer.h"\n#include "kernels_cpu.h"\n'
        '__attribute__((visibility("default"))) int glm_backend_open(void);\n'
        "int glm_backend_open(void) {\n"
        "  struct futhark_context_config *config = futhark_context_config_new();\n"
        "  if (config == NULL) return -1;\n"
        "  futhark_context_config_free(config);\n"
        "  return GLM_ANSWER;\n}\n"
    ),
    "native/collectives/threads/sum.c": (
        "int glm_sum(int a, int b);\nint glm_sum(int a, int b) { return a + b; }\n"
    ),
    "terra/api/exports.t": "return {exports = {}}\n",
    "tests/test_passing.py": "def test_passing():\n    assert True\n",
}
IR = """source_filename = "terra"
target triple = "x86_64-pc-linux-gnu"

define i32 @init_engine(i32 %count) {
  %sum = add i32 %count, {addend}
  ret i32 %sum
}
"""


@dataclass
class Checkout:
    """A folder to build in, without a shared cache unless `variables` names one."""

    path: Path
    variables: dict = field(default_factory=dict)

    def scons(self, *arguments, status=0):
        """Runs scons, checks its exit status (any, when None) and returns all that it printed.

        Python keeps no bytecode: it knows a source by its size and second, and tests change a
        script and change it back within one.
        """
        variables = os.environ | {"GLM_BUILD_CACHE": "off", "OMP_NUM_THREADS": "1"}
        variables["PYTHONDONTWRITEBYTECODE"] = "1"
        for name in ("SCONSFLAGS", "PYTEST_ADDOPTS", "GLM_BUILD_DIR"):
            variables.pop(name, None)
        done = subprocess.run(
            [sys.executable, "-m", "SCons", *arguments],
            cwd=self.path,
            env=variables | self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert status is None or done.returncode == status, done.stdout
        return done.stdout

    def would_build(self, *targets):
        """What a dry run says it would build."""
        return set(EXPLAINED.findall(self.scons("-n", "--debug=explain", *targets)))

    def write(self, name, text):
        """Writes a file, making its folder."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def write_function(self, name, place):
        """Writes a source of one function: main for programs, else one that only it has."""
        function = "main" if place.startswith("tests/") else re.sub(r"\W", "_", place)
        self.write(name, f"int {function}(void);\nint {function}(void) {{ return 0; }}\n")

    def change(self, name):
        """Adds one byte to a file and returns the bytes that it had."""
        before = (self.path / name).read_bytes()
        (self.path / name).write_bytes(before + b"\n")
        return before

    def record_lowerings(self):
        """Writes manifests that agree with the checkout's sources and lowered files."""
        for lowering in LOWERINGS:
            folder, versions = self.path / lowering.folder, {lowering.tool: "none"}
            self.write(lowering.manifest, lowering.manifest_text(self.path, folder, versions))


def build_files():
    """The files that are the build itself, relative to the checkout."""
    patterns = (
        "SConstruct",
        "*/SConscript",
        "tools/scons/*.py",
        "tools/scons/*.t",
        "tools/release/*.py",
        "python/glm_engine/__init__.py",
        "python/glm_engine/core/__init__.py",
        "python/glm_engine/core/layout.py",
        "python/glm_engine/version.py",
        "checkpoints/capitals/config.json",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "NOTICE",
        "native/backends/futhark/context.h",
        "native/include/glm/backend.h",
        "native/include/glm/engine.h",
        "native/include/glm/status.h",
    )
    return [path.relative_to(ROOT) for pattern in patterns for path in ROOT.glob(pattern)]


def native_folders():
    """Every folder whose C and C++ sources some SConscript asks for."""
    for script in ROOT.glob("*/SConscript"):
        for arguments in NATIVE_FOLDERS.findall(script.read_text()):
            for folder in re.findall(r'"([^"]+)"', arguments):
                yield f"{script.parent.name}/{folder}"


def named_sources():
    """Every C++ source that some SConscript names by itself."""
    for script in ROOT.glob("*/SConscript"):
        yield from NAMED_SOURCE.findall(script.read_text())


def small_checkout(path, variables=None):
    """The real build over sources of a few lines each."""
    checkout = Checkout(path, variables or {})
    for name in build_files():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path / name)
    for name, text in SMALL_SOURCES.items():
        checkout.write(name, text)
    for folder in native_folders():
        if not any((path / folder).glob("*.c")):
            checkout.write_function(f"{folder}/main.c", folder)
    for name in named_sources():
        checkout.write_function(name, name)
    for addend, name in enumerate(TERRA.files):
        checkout.write(name, IR.replace("{addend}", str(addend)))
    checkout.record_lowerings()
    return checkout


def source_files():
    """Every file of this checkout that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = sorted(set(filter(None, done.stdout.split("\0"))))
    return [name for name in names if (ROOT / name).is_file()]


def copied_checkout(path):
    """This checkout's sources and what is built of them, copied to `path`."""
    for name in source_files():
        if not name.startswith(("checkpoints/", "tests/golden/", "tests/fuzz/corpus/")):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, path / name)
    if (ROOT / "build").is_dir():
        ignored = shutil.ignore_patterns("fuzz", "tmp*")
        shutil.copytree(ROOT / "build", path / "build", ignore=ignored)
    return Checkout(path)

"""A small checkout that holds tools/develop and nothing else, for runs without a network."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORDING_INSTALLER = """#!/usr/bin/env bash
set -euo pipefail
mkdir -p "$1/.toolchain"
printf '%s|%s\\n' "$2" "$4" >>"$1/installs"
printf 'export GLM_ROOT=%q GLM_PYTHON=%q CC=%q CXX=%q\\n' "$1" "$1/tool" "$1/tool" "$1/tool" >"$3"
touch "$1/tool"
chmod 755 "$1/tool"
"""


@dataclass
class Checkout:
    """A copy of tools/develop and what it reads, in a folder of its own."""

    root: Path

    @property
    def toolchain(self):
        return self.root / "tools" / "toolchain"

    @property
    def home(self):
        return self.root / ".toolchain"

    def command(self, *arguments):
        return [str(self.root / "tools" / "develop"), *map(str, arguments)]

    def variables(self, **changes):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GLM_")}
        return kept | changes

    def run(self, *arguments, **changes):
        return subprocess.run(
            self.command(*arguments),
            capture_output=True,
            text=True,
            timeout=240,
            env=self.variables(**changes),
        )

    def start(self, *arguments, **changes):
        return subprocess.Popen(
            self.command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.variables(**changes),
            start_new_session=True,
        )

    def installs(self):
        record = self.root / "installs"
        return record.read_text().splitlines() if record.exists() else []

    def leftovers(self):
        return sorted(path.name for path in self.home.glob("*") if path.name != "lock")


@pytest.fixture
def checkout(tmp_path):
    """tools/develop with its real installer."""
    root = tmp_path / "check out"
    shutil.copytree(ROOT / "tools" / "toolchain", root / "tools" / "toolchain")
    shutil.copy(ROOT / "tools" / "develop", root / "tools" / "develop")
    return Checkout(root)


@pytest.fixture
def recorded(checkout):
    """tools/develop with an installer that only records that it was called."""
    (checkout.toolchain / "install.bash").write_text(RECORDING_INSTALLER)
    return checkout


@pytest.fixture
def programs(tmp_path):
    """A folder of small programs that stand in front of the machine's own, and its PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()

    def write(**scripts):
        for name, script in scripts.items():
            path = folder / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    return write

"""The flake in a folder of its own, and Nix's answers about it; no store of the machine is used."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PARTS = ("flake.nix", "flake.lock", "replit.nix", "nix", "tools/toolchain/locks")
USED = re.compile(r"^trace: used (\S+)$", re.M)
FEATURES = ("--extra-experimental-features", "nix-command flakes", "--offline")


class Flake:
    """A copy of what the flake is made of, beside a copy of what was read in nixpkgs."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "checkout"
        self.nixpkgs = folder / "nixpkgs"
        self.read = self.nixpkgs / "read.json"
        for part in PARTS:
            source, target = ROOT / part, self.root / part
            target.parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if source.is_dir() else shutil.copy
            copy(source, target)
        shutil.copytree(HERE / "nixpkgs", self.nixpkgs)

    def run(self, *command):
        """What a command of Nix did, with store and state inside the folder."""
        places = {"STORE_DIR": "store", "STATE_DIR": "state", "LOG_DIR": "log", "CONF_DIR": "conf"}
        variables = {f"NIX_{name}": str(self.folder / place) for name, place in places.items()}
        variables |= {"HOME": str(self.folder), "NIX_CONFIG": "build-users-group ="}
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=os.environ | variables
        )

    def evaluate(self):
        """What Nix says of every output, or of what it stumbled over."""
        folders = ["--arg", "root", str(self.root), "--arg", "nixpkgs", str(self.nixpkgs)]
        script = str(HERE / "evaluate.nix")
        return self.run("nix-instantiate", "--eval", "--strict", "--json", *folders, script)

    def values(self):
        """Every output as plain values, and the names of nixpkgs that were used."""
        done = self.evaluate()
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), set(USED.findall(done.stderr))

    def check(self):
        """Nix's own check of the flake, which builds nothing."""
        override = ["--override-input", "nixpkgs", f"path:{self.nixpkgs}"]
        options = [*FEATURES, "--no-build", "--no-write-lock-file", *override]
        return self.run("nix", "flake", "check", *options, f"path:{self.root}")

    def replace(self, part, old, new):
        """Changes a text of the flake that stands there once."""
        path = self.root / part
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def entries(self):
        """What was read in nixpkgs: name to file, place, commit and more."""
        return json.loads(self.read.read_text())

    def write_entries(self, entries):
        """Changes what is said to have been read."""
        self.read.write_text(json.dumps(entries))


@pytest.fixture
def flake(tmp_path):
    """A copy of the flake that a test may change."""
    return Flake(tmp_path)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """Every output of the flake as plain values, and the names of nixpkgs that were used."""
    return Flake(tmp_path_factory.mktemp("nix")).values()

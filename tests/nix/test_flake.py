"""The flake, parsed and evaluated against a small set of packages: no Nix store is needed."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import groups

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NIX_FILES = [
    ROOT / "flake.nix",
    ROOT / "replit.nix",
    *sorted((ROOT / "nix").glob("*.nix")),
]
REVISION = "8fd9daa3db09ced9700431c5b7ad0e8ba199b575"

needs_nix = groups.needs("nix-instantiate")


def nix_instantiate(folder, *arguments):
    """Standard output of nix-instantiate, which keeps its store and state in `folder`."""
    places = {"STORE_DIR": "store", "STATE_DIR": "state", "LOG_DIR": "log", "CONF_DIR": "conf"}
    variables = {f"NIX_{name}": str(folder / place) for name, place in places.items()}
    done = subprocess.run(
        ["nix-instantiate", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def flake(tmp_path_factory):
    """What the flake's outputs say, as plain values."""
    folder = tmp_path_factory.mktemp("nix")
    arguments = ["--arg", "root", str(ROOT), str(HERE / "evaluate.nix")]
    text = nix_instantiate(folder, "--eval", "--strict", "--json", *arguments)
    return json.loads(text)


@needs_nix
@pytest.mark.parametrize("path", NIX_FILES, ids=lambda path: path.name)
def test_file_parses(path, tmp_path):
    assert nix_instantiate(tmp_path, "--parse", str(path))


@needs_nix
def test_outputs(flake):
    assert flake["outputs"] == ["apps", "checks", "devShells", "formatter", "packages"]
    assert flake["shells"] == ["default", "develop", "run"]
    assert set(flake["checks"]) >= {"formatting", "glm", "rules", "smoke", "tests"}
    assert flake["packages"] == ["default", "glm"]
    assert flake["formatter"] == "nixfmt-tree"
    assert flake["program"].endswith("/bin/glm")


@needs_nix
def test_develop_shell_has_every_tool(flake):
    shell = flake["develop"]
    assert {"futhark", "terra", "python3.11", "glm", "cuda-home-12.8"} <= set(shell["packages"])
    assert shell["CUDA_HOME"] == "/packages/cuda-home-12.8"
    assert "export CC=/packages/cc/bin/cc" in shell["shellHook"]
    assert "export CXX=/packages/cc/bin/c++" in shell["shellHook"]
    assert "LD_LIBRARY_PATH" not in shell["shellHook"]


@needs_nix
def test_run_shell_holds_the_built_engine(flake):
    assert "glm-engine" in flake["run"]["packages"]
    assert "terra" not in flake["run"]["packages"]


@needs_nix
def test_builds_through_scons(flake):
    assert "scons" in flake["build"]
    assert "scons smoke" in flake["smoke"]


def test_lock_pins_nixpkgs():
    lock = json.loads((ROOT / "flake.lock").read_text())
    pinned = lock["nodes"]["nixpkgs"]
    assert pinned["locked"]["rev"] == REVISION
    assert pinned["locked"]["narHash"].startswith("sha256-")
    assert pinned["original"]["ref"] == "nixos-25.11"
    assert lock["nodes"][lock["root"]]["inputs"] == {"nixpkgs": "nixpkgs"}

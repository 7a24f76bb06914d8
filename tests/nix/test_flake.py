"""The flake, evaluated against what was read in nixpkgs: nothing is built and nothing fetched."""

import json
import re
from pathlib import Path

import pytest

from glm_engine.version import VERSION
from tests import groups

ROOT = Path(__file__).resolve().parents[2]
NIX_FILES = [
    ROOT / "flake.nix",
    ROOT / "replit.nix",
    *sorted((ROOT / "nix").glob("*.nix")),
]
REVISION = "8fd9daa3db09ced9700431c5b7ad0e8ba199b575"

needs_nix = groups.needs("nix", "nix-instantiate")


@needs_nix
def test_nix_is_new_enough_for_the_pin(flake):
    said = flake.run("nix", "--version").stdout
    major, minor = re.search(r"(\d+)\.(\d+)", said).groups()
    assert (int(major), int(minor)) >= (2, 18)


@needs_nix
@pytest.mark.parametrize("path", NIX_FILES, ids=lambda path: path.name)
def test_file_parses(path, flake):
    done = flake.run("nix-instantiate", "--parse", str(path))
    assert done.returncode == 0, done.stderr


@needs_nix
def test_outputs(evaluated):
    values, _ = evaluated
    names = values["names"]
    assert names.pop("formatter") == "nixfmt-tree"
    assert names == {
        "apps": ["default", "glm", "glm-cuda"],
        "checks": ["cpu", "cuda", "formatting", "rules", "smoke", "tests"],
        "devShells": ["cpu", "cuda13", "default", "run"],
        "packages": ["cpu", "cuda", "default"],
    }


@needs_nix
def test_every_output_is_a_derivation(evaluated):
    values, _ = evaluated
    for kind, derivations in values["derivations"].items():
        assert list(derivations) == values["names"][kind]
        assert all(path.endswith(".drv") for path in derivations.values())


@needs_nix
def test_nix_accepts_the_flake(flake):
    done = flake.check()
    assert done.returncode == 0, done.stderr
    for output in ("packages.x86_64-linux.cuda", "checks.x86_64-linux.tests"):
        assert f"checking derivation {output}" in done.stderr


@needs_nix
def test_nix_refuses_an_app_without_a_program(flake):
    flake.replace("nix/default.nix", "    program =", "    programme =")
    done = flake.check()
    assert done.returncode != 0
    assert "program" in done.stderr


def test_every_entry_says_where_it_was_read(flake):
    for name, entry in flake.entries().items():
        assert re.fullmatch(r"(pkgs|lib)/\S+\.nix", entry["file"]), name
        assert entry["place"], name
        assert entry["commit"] is None or re.fullmatch("[0-9a-f]{40}", entry["commit"]), name


@needs_nix
def test_flake_uses_what_was_read_and_nothing_else(flake, evaluated):
    _, used = evaluated
    assert used == set(flake.entries())


@needs_nix
def test_extra_entry_is_seen(flake):
    entries = flake.entries()
    flake.write_entries(entries | {"hello": entries["git"]})
    _, used = flake.values()
    assert set(flake.entries()) - used == {"hello"}


@needs_nix
@pytest.mark.parametrize("name", ["futhark", "cudaPackages_12_8.nccl", "zlib", "gcc"])
def test_missing_entry_is_named(name, flake):
    entries = flake.entries()
    del entries[name]
    flake.write_entries(entries)
    done = flake.evaluate()
    assert done.returncode != 0
    assert f"attribute '{name.rpartition('.')[2]}' missing" in done.stderr


@needs_nix
@pytest.mark.parametrize(
    ("part", "right", "wrong"),
    [
        ("nix/tools.nix", "pkgs.terra", "pkgs.tera"),
        ("nix/tools.nix", "cuda.libcublas", "cuda.libcubas"),
        ("nix/libraries.nix", "pkgs.zlib", "pkgs.zlibb"),
        ("replit.nix", "pkgs.util-linux", "pkgs.utillinux"),
    ],
)
def test_misspelt_attribute_is_named(part, right, wrong, flake):
    flake.replace(part, right, wrong)
    done = flake.evaluate()
    assert done.returncode != 0
    assert f"attribute '{wrong.rpartition('.')[2]}' missing" in done.stderr


@needs_nix
def test_argument_that_nixpkgs_does_not_take_is_named(flake):
    flake.replace("nix/python.nix", 'format = "wheel";', 'format = "wheel"; suffix = "whl";')
    done = flake.evaluate()
    assert done.returncode != 0
    assert "unexpected argument 'suffix'" in done.stderr


@needs_nix
@pytest.mark.parametrize(("name", "cuda"), [("default", "12.8"), ("cuda13", "13.0")])
def test_develop_shell_has_every_tool(name, cuda, evaluated):
    shell = evaluated[0]["shells"][name]
    home = f"cuda-home-{cuda}"
    tools = {"futhark", "terra", "glm-python-base-cutlass", "glm", "git", "valgrind", home}
    assert tools <= set(shell["packages"])
    assert shell["CUDA_HOME"].endswith(f"-{home}")
    assert re.search("export CC=.*/bin/cc\n", shell["shellHook"])
    assert re.search(r"export CXX=.*/bin/c\+\+\n", shell["shellHook"])
    assert "LD_LIBRARY_PATH" not in shell["shellHook"]


@needs_nix
def test_run_shell_holds_the_built_engine(evaluated):
    shell = evaluated[0]["shells"]["run"]
    assert shell["packages"] == [f"glm-engine-cpu-{VERSION}"]


@needs_nix
def test_builds_through_scons(evaluated):
    values, _ = evaluated
    assert "scons" in values["phases"]["cpu"]
    assert " cuda " in values["phases"]["cuda"]
    assert " cuda " not in values["phases"]["cpu"]
    assert "scons smoke" in values["commands"]["smoke"]
    assert "nixfmt --check" in values["commands"]["formatting"]


@needs_nix
def test_apps_run_the_packages(evaluated):
    programs = evaluated[0]["programs"]
    assert programs["default"] == programs["glm"]
    assert programs["glm"].endswith(f"-glm-engine-cpu-{VERSION}/bin/glm")
    assert programs["glm-cuda"].endswith(f"-glm-engine-cuda-{VERSION}/bin/glm")


def test_lock_pins_nixpkgs():
    lock = json.loads((ROOT / "flake.lock").read_text())
    pinned = lock["nodes"]["nixpkgs"]
    assert pinned["locked"]["rev"] == REVISION
    assert pinned["locked"]["narHash"].startswith("sha256-")
    assert pinned["original"]["ref"] == "nixos-25.11"
    assert lock["nodes"][lock["root"]]["inputs"] == {"nixpkgs": "nixpkgs"}

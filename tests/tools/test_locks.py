"""Lock files: every package pinned and hashed, as pyproject.toml asks, and free of addresses."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "tools" / "toolchain" / "locks"
VERSIONS = ("3.11", "3.12")
BASE_GROUPS = ("build", "test", "check")
GROUPS = ("oracle", "modal", "docs", "browser", "services", "cuda", "cutlass")
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+) \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def read_lock(path):
    """Name to (version, number of hashes); any other line is an error."""
    pins = {}
    for line in path.read_text().splitlines():
        pin = PIN.match(line)
        if pin:
            name = pin.group(1)
            pins[name] = (pin.group(2), 0)
        else:
            assert HASH.match(line), f"{path.name}: {line!r} is neither a pin nor a hash"
            pins[name] = (pins[name][0], pins[name][1] + 1)
    return pins


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pinned(requirements):
    return dict(requirement.split("==") for requirement in requirements)


@pytest.mark.parametrize("path", sorted(LOCKS.glob("*.lock")), ids=lambda path: path.name)
def test_every_pin_has_a_hash(path):
    pins = read_lock(path)
    assert pins
    assert all(count > 0 for _, count in pins.values())


@pytest.mark.parametrize("version", VERSIONS)
def test_base_lock_holds_what_the_project_asks(version):
    said, wanted = project(), {}
    for group in BASE_GROUPS:
        wanted |= pinned(said["optional-dependencies"][group])
    locked = {name: pin for name, (pin, _) in read_lock(LOCKS / f"base-{version}.lock").items()}
    assert wanted.items() <= locked.items()
    for one in map(Requirement, said["dependencies"]):
        assert one.specifier.contains(locked[one.name]), f"{one} is locked at {locked[one.name]}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", GROUPS)
def test_group_lock_holds_what_the_project_asks(group, version):
    wanted = pinned(project()["optional-dependencies"][group])
    wanted.pop("torch", None)
    locked = {name: pin for name, (pin, _) in read_lock(LOCKS / f"{group}-{version}.lock").items()}
    assert wanted.items() <= locked.items()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("extra", "group"), [("plot", "oracle"), ("otel", "services")])
def test_extras_of_users_allow_the_version_that_the_tests_use(extra, group, version):
    locked = read_lock(LOCKS / f"{group}-{version}.lock")
    for one in map(Requirement, project()["optional-dependencies"][extra]):
        assert one.specifier.contains(locked[one.name][0])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["base", "oracle"])
def test_nothing_drags_cuda_in(name, version):
    locked = read_lock(LOCKS / f"{name}-{version}.lock")
    heavy = [one for one in locked if one.startswith(("nvidia-", "cuda-", "torch", "triton"))]
    assert heavy == []


@pytest.mark.parametrize("name", ["base", *GROUPS])
def test_both_pythons_get_the_same_versions(name):
    first, second = (read_lock(LOCKS / f"{name}-{version}.lock") for version in VERSIONS)
    assert {one: pin for one, (pin, _) in first.items()} == {
        one: pin for one, (pin, _) in second.items()
    }


def test_torch_is_the_version_the_project_names():
    wanted = pinned(project()["optional-dependencies"]["oracle"])["torch"]
    assert read_lock(LOCKS / "torch-3.11.lock")["torch"][0] == wanted


def test_debian_packages_are_pinned():
    header, *rows = (ROOT / "tools/toolchain/packages.tsv").read_text().splitlines()
    assert header.split("\t") == ["set", "suite", "package", "version"]
    assert all(len(row.split("\t")) == 4 and row.endswith("*") for row in rows)
    sets = {"futhark", "pip", "machine", "fuzz", "nix", "chromium"}
    assert {row.split("\t")[0] for row in rows} == sets

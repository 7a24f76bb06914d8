"""The wheels that Nix fetches: the list of the locks, fit for Python 3.11, with their libraries."""

import json
import re
import subprocess
from pathlib import Path
from site import getsitepackages

import pytest
from packaging import tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests import groups
from tests.tools.test_locks import LOCKS

GLIBC_OF_THE_PIN = 40
GLIBC = re.compile(r"(libc|libdl|libm|libpthread|librt|ld-linux-x86-64)\.so\.\d+")
NEEDED = re.compile(r"\(NEEDED\).*\[(.+)\]")
GROUPS_OF = {"cpu": ("base",), "cuda": ("base", "cutlass"), "default": ("base",)}

needs_nix = groups.needs("nix", "nix-instantiate")


def locked(names):
    """Name to version and allowed SHA-256, as the locks say."""
    pins = {}
    for name in names:
        for line in (LOCKS / f"{name}-3.11.lock").read_text().splitlines():
            if "==" in line:
                package, version = line.removesuffix(" \\").split("==")
                pins[package] = (version, set())
            else:
                pins[package][1].add(re.search("sha256:([0-9a-f]+)", line).group(1))
    return pins


def differences(wheels, pins):
    """The names of packages whose wheel is not one of the lock, or that have none or two."""
    fetched = [canonicalize_name(wheel["pname"]) for wheel in wheels]
    wrong = {name for name in fetched if fetched.count(name) > 1} | set(pins) ^ set(fetched)
    for name, wheel in zip(fetched, wheels, strict=True):
        version, digests = pins.get(name, (None, ()))
        if wheel["version"] != version or wheel["sha256"] not in digests:
            wrong.add(name)
    return wrong


def supported():
    """Every tag that CPython 3.11 takes on the C library of the pin."""
    numbered = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC_OF_THE_PIN, 4, -1)]
    platforms = [*numbered, "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]
    own = tags.cpython_tags((3, 11), platforms=platforms)
    return {*own, *tags.compatible_tags((3, 11), "cp311", platforms)}


def wheel_file(wheel):
    return "-".join(wheel[part] for part in ("pname", "version", "python", "abi", "platform"))


@needs_nix
@pytest.mark.parametrize("package", GROUPS_OF)
def test_flake_fetches_the_wheels_of_the_lock(package, evaluated):
    wheels = evaluated[0]["wheels"][package]
    assert differences(wheels, locked(GROUPS_OF[package])) == set()


@needs_nix
@pytest.mark.parametrize("shell", ["default", "cuda13", "cpu"])
def test_shells_hold_the_wheels_of_the_packages(shell, evaluated):
    values, _ = evaluated
    wheels = values["wheels"]["cpu" if shell == "cpu" else "cuda"]
    assert values["pythonOfShells"][shell] == [f"{wheel_file(wheel)}.whl" for wheel in wheels]


@needs_nix
def test_wheel_that_is_not_in_the_lock_is_seen(flake):
    path = flake.root / "tools/toolchain/locks/base-3.11.json"
    wheels = {wheel["pname"]: wheel for wheel in json.loads(path.read_text())}
    del wheels["numpy"]
    wheels["click"]["sha256"] = "0" * 64
    wheels["rich"]["version"] = "1.0.0"
    wheels["extra"] = wheels["orjson"] | {"pname": "extra"}
    path.write_text(json.dumps(list(wheels.values())))
    values, _ = flake.values()
    wrong = differences(values["wheels"]["cpu"], locked(["base"]))
    assert wrong == {"numpy", "click", "rich", "extra"}


@pytest.mark.parametrize("group", ["base", "cutlass"])
def test_wheels_fit_the_python_of_the_pin(group):
    for wheel in json.loads((LOCKS / f"{group}-3.11.json").read_text()):
        assert parse_wheel_filename(f"{wheel_file(wheel)}.whl")[3] & supported(), wheel


def needed_libraries(folder):
    """What the programs and libraries below a folder ask for and no file below it is."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    found = [str(path) for path in files if path.open("rb").read(4) == b"\x7fELF"]
    said = subprocess.run(["readelf", "-dW", *found], capture_output=True, text=True, check=True)
    names = set(NEEDED.findall(said.stdout)) - {path.name for path in files}
    return {name for name in names if not GLIBC.fullmatch(name)}


@needs_nix
def test_libraries_of_the_wheels_are_given_to_the_loader(evaluated, flake):
    values, _ = evaluated
    given = {name.replace(".", "-"): entry for name, entry in flake.entries().items()}
    patched = {one for name in values["libraries"] for one in given[name]["libraries"]}
    assert needed_libraries(Path(getsitepackages()[0])) == patched
    for name in values["libraries"]:
        assert f"-{name}" in values["replit"]["libraries"]
        assert name in values["replit"]["deps"]

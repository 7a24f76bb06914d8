"""The source archive: the files that git tracks, and a bill that names each file's hash."""

import base64
import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.server.serving import ROOT
from tools.release.archive import make_archive
from tools.release.contents import release_version

DEVICES = ["cpu"]


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    """The folder that the archive holds."""
    path = make_archive(release_version(DEVICES), DEVICES, wheel)
    folder = tmp_path_factory.mktemp("unpacked")
    subprocess.run(["tar", "-xzf", path, "-C", folder], check=True)
    (inside,) = folder.iterdir()
    assert path.name == f"{inside.name}.tar.gz"
    return inside


@pytest.fixture(scope="module")
def bill(unpacked) -> dict:
    return json.loads((unpacked / "sbom.cdx.json").read_text())


def hashes_of(components):
    """Name to SHA-256 of the files among some components."""
    return {one["name"]: one["hashes"][0]["content"] for one in components if one["type"] == "file"}


def test_it_holds_what_git_tracks(unpacked):
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert held == tracked | {"sbom.cdx.json", "SHA256SUMS"}
    assert (unpacked / "tools" / "develop").stat().st_mode & 0o777 == 0o755


def test_sha256sum_accepts_every_file(unpacked):
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(command, cwd=unpacked, check=True)
    listed = {line.partition("  ")[2] for line in (unpacked / "SHA256SUMS").open()}
    assert len(listed) + 1 == sum(path.is_file() for path in unpacked.rglob("*"))


def test_the_bill_names_the_hash_of_every_file(unpacked, bill, wheel):
    named = hashes_of(bill["components"])
    assert named.pop(wheel.name) == hashlib.sha256(wheel.read_bytes()).hexdigest()
    files = {path for path in unpacked.rglob("*") if path.is_file()}
    own = {unpacked / "sbom.cdx.json", unpacked / "SHA256SUMS"}
    assert named == {
        path.relative_to(unpacked).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files - own
    }


def test_the_bill_and_the_wheels_own_record_agree(bill, wheel):
    (found,) = (one for one in bill["components"] if one["name"] == wheel.name)
    named = hashes_of(found["components"])
    with zipfile.ZipFile(wheel) as archive:
        (record,) = (name for name in archive.namelist() if name.endswith("/RECORD"))
        rows = [row.rsplit(",", 2) for row in archive.read(record).decode().splitlines()]
    assert named.keys() == {name for name, *_ in rows}
    for name, digest, _ in rows:
        if name != record:
            raw = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
            assert named[name] == raw.hex()


def test_the_bill_names_what_pip_brings(bill):
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["version"].endswith("+cpu")
    brought = {one["name"] for one in bill["components"] if one["type"] == "library"}
    assert {"numpy", "fastapi", "tokenizers", "libstdc++"} <= brought

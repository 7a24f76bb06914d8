"""The source archive: every file of the checkout, the bill of materials and the list of hashes."""

import gzip
import io
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hatchling.builders.utils import get_reproducible_timestamp

from tools.release.contents import ROOT
from tools.release.sbom import bill_of_materials, sha256

BILL = "sbom.cdx.json"
HASHES = "SHA256SUMS"


def source_files() -> dict[str, bytes]:
    """Path to bytes of every file that git tracks."""
    command = ["git", "ls-files", "-z"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    names = filter(None, done.stdout.split("\0"))
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


def list_of_hashes(files: Mapping[str, bytes]) -> str:
    """The text that `sha256sum --check` reads."""
    return "".join(f"{sha256(content)}  {name}\n" for name, content in sorted(files.items()))


def is_executable(name: str) -> bool:
    """Whether a file of the checkout may be run; what is only in the archive may not."""
    path = ROOT / name
    return path.is_file() and path.stat().st_mode & 0o100 != 0


def add_file(archive: tarfile.TarFile, folder: str, name: str, content: bytes) -> None:
    """Add one file with nothing of this machine: no owner, no time of its own."""
    entry = tarfile.TarInfo(f"{folder}/{name}")
    entry.size = len(content)
    entry.mtime = get_reproducible_timestamp()
    entry.mode = 0o755 if is_executable(name) else 0o644
    archive.addfile(entry, io.BytesIO(content))


def make_archive(version: str, devices: Sequence[str], wheel: Path) -> Path:
    """Write the source archive beside the wheel and return its path."""
    name = f"glm_engine-{version}"
    path = wheel.parent / f"{name}.tar.gz"
    files = source_files()
    files[BILL] = bill_of_materials(version, devices, wheel, files).encode()
    files[HASHES] = list_of_hashes(files).encode()
    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for file in sorted(files):
            add_file(archive, name, file, files[file])
    return path

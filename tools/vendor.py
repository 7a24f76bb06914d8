"""`python -m tools.vendor [NAME=VERSION]`: take the page's libraries from the npm registry."""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "python/glm_engine/server/page/vendor"
LIST = FOLDER / "libraries.json"
LICENCE = "LICENSE"


def pack(source: str, folder: str) -> Path:
    command = ["npm", "pack", "--silent", source]
    name = subprocess.check_output(command, cwd=folder, text=True).split()[-1]
    return Path(folder) / name


def read(archive: tarfile.TarFile, path: str) -> bytes:
    file = archive.extractfile(f"package/{path}")
    if file is None:
        raise FileNotFoundError(path)
    return file.read()


def renew(library: dict[str, Any], version: str) -> dict[str, Any]:
    """Write a library's files and licence; return its row of the list."""
    source = f"{library['name']}@{version}"
    digests = {}
    with tempfile.TemporaryDirectory() as folder, tarfile.open(pack(source, folder)) as archive:
        (FOLDER / library["licence_file"]).write_bytes(read(archive, LICENCE))
        for path in library["sha256"]:
            content = read(archive, path)
            (FOLDER / Path(path).name).write_bytes(content)
            digests[path] = hashlib.sha256(content).hexdigest()
    return {**library, "version": version, "source": source, "sha256": digests}


def main(wishes: list[str]) -> None:
    wanted = dict(wish.rsplit("=", 1) for wish in wishes)
    libraries = json.loads(LIST.read_text("utf-8"))
    rows = [renew(one, wanted.get(one["name"], one["version"])) for one in libraries]
    LIST.write_text(json.dumps(rows, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

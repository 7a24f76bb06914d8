"""The corpora: generated seeds and, packed in corpus/NAME.zip, what fuzzing found.

Run from the repository's root:
`python -m tests.fuzz.corpus unpack NAME FOLDER` writes all inputs of a harness as files,
`python -m tests.fuzz.corpus pack NAME FOLDER` packs the files of a folder that are not seeds.
"""

import sys
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile, ZipInfo

from tests.fuzz.seeds import HARNESSES

FOLDER = Path(__file__).resolve().parent / "corpus"
USAGE = "usage: python -m tests.fuzz.corpus unpack|pack NAME FOLDER"


def archive(harness: str) -> Path:
    return FOLDER / f"{harness}.zip"


def inputs(harness: str) -> dict[str, bytes]:
    """Every input of a harness by name: seeds first, then what fuzzing found."""
    with ZipFile(archive(harness)) as packed:
        found = {name: packed.read(name) for name in packed.namelist()}
    return {**dict(HARNESSES[harness]()), **found}


def unpack(harness: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in inputs(harness).items():
        (folder / name).write_bytes(data)


def pack(harness: str, folder: Path) -> None:
    """Packs the inputs of a folder in the same bytes each time."""
    seeds = {data for _, data in HARNESSES[harness]()}
    data = {path.read_bytes() for path in folder.iterdir()} - seeds
    found = {f"found-{sha256(one).hexdigest()[:10]}": one for one in data}
    with ZipFile(archive(harness), "w") as packed:
        for name in sorted(found):
            packed.writestr(ZipInfo(name), found[name])


def main(arguments: list[str]) -> None:
    commands = {"unpack": unpack, "pack": pack}
    match arguments:
        case [command, harness, folder] if command in commands and harness in HARNESSES:
            commands[command](harness, Path(folder))
        case _:
            sys.exit(f"{USAGE}; NAME is one of {', '.join(HARNESSES)}")


if __name__ == "__main__":
    main(sys.argv[1:])

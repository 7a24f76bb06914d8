"""Files that compilers made and the repository holds: how they are written and verified."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any


class LoweringError(Exception):
    """The outputs cannot be written, or are not those of the present sources."""


@dataclass(frozen=True)
class Lowering:
    """What `tool` makes of the files that match `patterns` (but `left_out`), kept in `folder`.

    `outputs` are names below `folder`, `targets` what they are made for. `run(tool, root, folder)`
    writes them below another folder; `versions(tool)` states what decides over their bytes.
    """

    tool: str
    folder: str
    patterns: Sequence[str]
    outputs: Sequence[str]
    targets: Mapping[str, object]
    run: Callable[[str, Path, Path], None]
    versions: Callable[[str], Mapping[str, str | None]]
    left_out: str = ""

    @property
    def manifest(self) -> str:
        """The file that records every hash, relative to the checkout."""
        return f"{self.folder}/manifest.json"

    @property
    def files(self) -> list[str]:
        """The outputs, relative to the checkout and sorted."""
        return sorted(f"{self.folder}/{name}" for name in self.outputs)

    def sources(self, root: Path) -> list[str]:
        """Every file that the outputs depend on, relative to the checkout and sorted."""
        found = [path for pattern in self.patterns for path in root.glob(pattern)]
        names = [path.relative_to(root).as_posix() for path in found]
        return sorted(name for name in names if not fnmatch(name, self.left_out))

    def recorded(self, root: Path) -> dict[str, Any]:
        """The manifest of the checkout."""
        manifest: dict[str, Any] = json.loads((root / self.manifest).read_text())
        return manifest

    def manifest_text(self, root: Path, folder: Path, versions: Mapping[str, str | None]) -> str:
        """The manifest of the outputs below `folder`, made from the sources below `root`."""
        outputs = {f"{self.folder}/{name}": sha256(folder / name) for name in self.outputs}
        manifest = {
            "versions": versions,
            "targets": self.targets,
            "sources": {name: sha256(root / name) for name in self.sources(root)},
            "outputs": outputs,
        }
        return json.dumps(manifest, indent=2, sort_keys=True) + "\n"

    def write(self, tool: str, root: Path, folder: Path) -> None:
        """Writes the outputs and the manifest below `folder`, laid out as in the repository."""
        self.run(tool, root, folder.resolve())
        for name in self.outputs:
            forbid_local_paths((folder / name).read_text(), name, root)
        text = self.manifest_text(root, folder, self.versions(tool))
        (folder / Path(self.manifest).name).write_text(text)

    def differences(self, root: Path) -> list[str]:
        """What keeps the outputs from being those of the present sources, one line each."""
        if not (root / self.manifest).is_file():
            return [f"{self.manifest} is missing"]
        manifest = self.recorded(root)
        lines = compare(root, manifest["sources"], self.sources(root))
        lines += compare(root, manifest["outputs"], self.files)
        if manifest["targets"] != self.targets:
            lines.append(f"{self.manifest} lists other targets than {self.targets}")
        return lines


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compare(root: Path, recorded: Mapping[str, str], present: Iterable[str]) -> list[str]:
    """One line for each file that is new, gone, or not as recorded."""
    lines = []
    for name in sorted(set(recorded) | set(present)):
        if name not in recorded:
            lines.append(f"{name} is not in the manifest")
        elif not (root / name).is_file():
            lines.append(f"{name} is in the manifest but not in the checkout")
        elif sha256(root / name) != recorded[name]:
            lines.append(f"{name} differs from the manifest")
    return lines


def forbid_local_paths(text: str, path: str, root: Path) -> None:
    """Refuses an output that names a folder of this machine: its bytes would depend on it."""
    for folder in (str(root.resolve()), str(Path.home())):
        if len(folder) > 1 and folder in text:
            raise LoweringError(f"{path} contains the local folder {folder}")
    source_file = re.search(r'^source_filename = "(/.*)"$', text, re.M)
    if source_file:
        raise LoweringError(f"{path} contains the absolute path {source_file.group(1)}")


def run_compiler(command: Sequence[str], root: Path) -> str:
    """Runs a compiler in the checkout; what it said is the error when it fails."""
    variables = os.environ | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, cwd=root, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise LoweringError(f"{' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    return done.stdout

"""The engine's LLVM IR in terra/lowered: how it is written and what it must come from."""

import hashlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

FAMILIES = {
    "x86-64-v3": {"triple": "x86_64-pc-linux-gnu", "cpu": "x86-64-v3"},
}
BUILDS = ("release", "debug")
FOLDER = Path("terra/lowered")
MANIFEST = FOLDER / "manifest.json"
SCRIPT = Path("tools/scons/lower.t")
SOURCE_PATTERNS = (
    "terra/**/*.t",
    "native/include/glm/*.h",
    str(SCRIPT),
)
NOT_LOWERED = "wrap.h"
VERSION_SCRIPT = "print(terralib.version, terralib.llvm_version)"


class LoweringError(Exception):
    """The IR cannot be written, or is not the one of the present sources."""


def sha256(path):
    """Hexadecimal SHA-256 of a file's bytes."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def lowered_sources(root):
    """Every file the IR depends on, relative to the checkout and sorted."""
    root = Path(root)
    found = [path for pattern in SOURCE_PATTERNS for path in root.glob(pattern)]
    read = [path for path in found if not path.name.endswith(NOT_LOWERED)]
    return sorted(path.relative_to(root).as_posix() for path in read)


def lowered_files():
    """The IR files, relative to the checkout and sorted."""
    return sorted(
        (FOLDER / family / f"{build}.ll").as_posix() for family in FAMILIES for build in BUILDS
    )


def terra_versions(terra):
    """What decides over the bytes: Terra, its LLVM, and the C library whose headers it reads."""
    with tempfile.NamedTemporaryFile("w", suffix=".t") as script:
        script.write(VERSION_SCRIPT)
        script.flush()
        done = subprocess.run([terra, script.name], capture_output=True, text=True)
    words = done.stdout.split()
    if done.returncode != 0 or len(words) != 2:
        raise LoweringError(f"{terra} did not state its version: {done.stderr.strip()}")
    libc = os.confstr("CS_GNU_LIBC_VERSION")
    return {"terra": words[0], "llvm": words[1], "libc": libc}


def forbid_local_paths(text, path, root):
    """Refuses IR that names a folder of this machine: its bytes would depend on the checkout."""
    for folder in (str(Path(root).resolve()), str(Path.home())):
        if len(folder) > 1 and folder in text:
            raise LoweringError(f"{path} names the local folder {folder}")
    source_file = re.search(r'^source_filename = "(/.*)"$', text, re.M)
    if source_file:
        raise LoweringError(f"{path} names the absolute source {source_file.group(1)}")


def lower_one(terra, root, family, build, output):
    """Runs Terra once and returns the IR text it wrote to `output`."""
    target = FAMILIES[family]
    command = [terra, str(SCRIPT), str(output), build, target["triple"]]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        raise LoweringError(f"{' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())
    text = Path(output).read_text()
    forbid_local_paths(text, output, root)
    return text


def manifest_text(root, outputs, versions):
    """The manifest of IR files (`outputs`: sha256 by name) made from the sources below `root`."""
    manifest = {
        "versions": versions,
        "targets": FAMILIES,
        "sources": {name: sha256(Path(root) / name) for name in lowered_sources(root)},
        "outputs": outputs,
    }
    return json.dumps(manifest, indent=2, sort_keys=True) + "\n"


def lower_all(terra, root, folder):
    """Writes every IR file and the manifest below `folder`, laid out as in terra/lowered."""
    outputs = {}
    for relative in lowered_files():
        path = Path(folder) / Path(relative).relative_to(FOLDER)
        path.parent.mkdir(parents=True, exist_ok=True)
        lower_one(terra, root, path.parent.name, path.stem, path.resolve())
        outputs[relative] = sha256(path)
    text = manifest_text(root, outputs, terra_versions(terra))
    (Path(folder) / MANIFEST.name).write_text(text)


def differences(root):
    """What keeps terra/lowered from being the IR of the present sources, one line each."""
    root = Path(root)
    if not (root / MANIFEST).is_file():
        return [f"{MANIFEST} is missing"]
    manifest = json.loads((root / MANIFEST).read_text())
    lines = compare(root, manifest["sources"], lowered_sources(root))
    return lines + compare(root, manifest["outputs"], lowered_files())


def compare(root, recorded, present):
    """One line for each file that is new, gone, or not as recorded."""
    lines = []
    for name in sorted(set(recorded) | set(present)):
        if name not in recorded:
            lines.append(f"{name} is not in the manifest")
        elif not (Path(root) / name).is_file():
            lines.append(f"{name} is in the manifest but not in the checkout")
        elif sha256(Path(root) / name) != recorded[name]:
            lines.append(f"{name} is not the file of the manifest")
    return lines

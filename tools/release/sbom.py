"""The bill of materials of a release, in CycloneDX's JSON form: every file with its SHA-256."""

import hashlib
import json
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from packaging.requirements import Requirement

from tools.release.contents import ROOT

Component = dict[str, object]
SPECIFICATION = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
DISTRIBUTION = "glm-engine"
INSIDE = {"cpu": ("libstdc++", "libgcc"), "cuda": ("cuda-runtime", "cutlass")}


def sha256(content: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def file_component(name: str, content: bytes, **more: object) -> Component:
    """One file by its path and hash."""
    hashes = [{"alg": "SHA-256", "content": sha256(content)}]
    return {"type": "file", "name": name, "hashes": hashes, **more}


def wheel_component(wheel: Path) -> Component:
    """The wheel, with every file that it holds."""
    with zipfile.ZipFile(wheel) as archive:
        held = [
            file_component(name, archive.read(name))
            for name in sorted(archive.namelist())
            if not name.endswith("/")
        ]
    return file_component(wheel.name, wheel.read_bytes(), components=held)


def library_components(devices: Iterable[str]) -> list[Component]:
    """What is linked into the libraries, and what pip brings beside them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = map(Requirement, project["dependencies"])
    linked: list[Component] = [
        {"type": "library", "name": name, "scope": "required"}
        for device in devices
        for name in INSIDE[device]
    ]
    return linked + [
        {
            "type": "library",
            "name": one.name,
            "scope": "required",
            "purl": f"pkg:pypi/{one.name}",
            "properties": [{"name": "requires", "value": str(one.specifier)}],
        }
        for one in wanted
    ]


def bill_of_materials(
    version: str, devices: Iterable[str], wheel: Path, files: Mapping[str, bytes]
) -> str:
    """The text of the bill of a wheel and of the files of its source archive, path to bytes."""
    release = {
        "type": "application",
        "bom-ref": DISTRIBUTION,
        "name": DISTRIBUTION,
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "purl": f"pkg:pypi/{DISTRIBUTION}@{version}",
    }
    components = [
        wheel_component(wheel),
        *(file_component(name, content) for name, content in sorted(files.items())),
        *library_components(devices),
    ]
    bill = {**SPECIFICATION, "metadata": {"component": release}, "components": components}
    return json.dumps(bill, indent=1) + "\n"

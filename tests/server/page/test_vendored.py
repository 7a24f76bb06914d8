"""The page's libraries are the registry's own, and nothing else lies beside them."""

import hashlib
import json
from pathlib import Path

from glm_engine.core.layout import PAGE
from tests.server.serving import ROOT

FOLDER = PAGE / "vendor"
LIBRARIES = json.loads((FOLDER / "libraries.json").read_text("utf-8"))


def test_files_are_as_published():
    sums = {Path(path).name: sum_ for one in LIBRARIES for path, sum_ in one["sha256"].items()}
    found = {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in sums}
    assert len(sums) >= 4
    assert found == sums


def test_nothing_else_lies_in_the_folder():
    libraries = {Path(path).name for one in LIBRARIES for path in one["sha256"]}
    licences = {one["licence_file"] for one in LIBRARIES}
    assert {path.name for path in FOLDER.iterdir()} == {"libraries.json"} | libraries | licences


def test_each_names_its_source_and_licence():
    notice = (ROOT / "NOTICE").read_text("utf-8")
    for one in LIBRARIES:
        assert one["source"] == f"{one['name']}@{one['version']}"
        assert one["licence"]
        assert f"{one['name']} {one['version']}" in notice
        assert "opyright" in (FOLDER / one["licence_file"]).read_text("utf-8")

"""terra/lowered: what is checked before it is used, and that lowering gives the same bytes."""

import json
import shutil

import lowering
import pytest

from tests.build.checkouts import ROOT, small_checkout

TERRA = shutil.which("terra")


@pytest.fixture
def checkout(tmp_path):
    return small_checkout(tmp_path)


def test_recorded_lowering_has_no_difference(checkout):
    assert lowering.differences(checkout.path) == []


@pytest.mark.parametrize(
    "name", ["terra/engine.t", "native/include/glm/answer.h", "terra/lowered/x86-64-v3/debug.ll"]
)
def test_changed_file_is_named(checkout, name):
    checkout.change(name)
    assert lowering.differences(checkout.path) == [f"{name} is not the file of the manifest"]


def test_added_and_removed_sources_are_named(checkout):
    checkout.write("terra/added.t", "return {}\n")
    (checkout.path / "terra/engine.t").unlink()
    assert lowering.differences(checkout.path) == [
        "terra/added.t is not in the manifest",
        "terra/engine.t is in the manifest but not in the checkout",
    ]


def test_missing_manifest_is_named(checkout):
    (checkout.path / lowering.MANIFEST).unlink()
    assert lowering.differences(checkout.path) == ["terra/lowered/manifest.json is missing"]


def test_build_stops_and_names_the_file(built_small):
    before = built_small.change("terra/engine.t")
    try:
        printed = built_small.scons("engine", status=2)
    finally:
        (built_small.path / "terra/engine.t").write_bytes(before)
    assert "terra/engine.t is not the file of the manifest" in printed
    assert "Run `scons lower`" in printed


@pytest.mark.parametrize(
    "line", ['source_filename = "/elsewhere/engine.t"', '@text = c"{root}/terra/engine.t"']
)
def test_local_paths_are_refused(tmp_path, line):
    text = line.replace("{root}", str(tmp_path))
    with pytest.raises(lowering.LoweringError, match="names the"):
        lowering.forbid_local_paths(text, "release.ll", tmp_path)


def test_without_terra_lower_says_so(built_small, monkeypatch):
    monkeypatch.setitem(built_small.variables, "PATH", "/usr/bin:/bin")
    if shutil.which("terra", path="/usr/bin:/bin"):
        pytest.skip("terra is installed beside the system's own tools")
    printed = built_small.scons("lower", status=2)
    assert "`terra` is not on the PATH" in printed


def terra_of_the_manifest():
    """Skips the test unless the versions of the manifest are on this machine."""
    wanted = json.loads((ROOT / lowering.MANIFEST).read_text())["versions"]
    if not TERRA:
        pytest.skip(f"terra {wanted['terra']} is not on the PATH, and no registry brings it")
    present = lowering.terra_versions(TERRA)
    if present != wanted:
        pytest.skip(f"the manifest names {wanted}, here is {present}")


def checkout_of_sources(path):
    for name in lowering.lowered_sources(ROOT):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path / name)
    return path


def test_lowering_again_gives_the_committed_bytes(tmp_path):
    terra_of_the_manifest()
    root = checkout_of_sources(tmp_path / "a-longer-name/below")
    lowering.lower_all(TERRA, root, root / "lowered")
    for relative in (*lowering.lowered_files(), str(lowering.MANIFEST)):
        again = root / "lowered" / relative.removeprefix("terra/lowered/")
        assert again.read_bytes() == (ROOT / relative).read_bytes(), relative


@pytest.mark.skipif(not TERRA, reason="terra is not on the PATH, and no registry brings it")
def test_error_of_terra_is_passed_on(tmp_path):
    root = checkout_of_sources(tmp_path)
    (root / "terra/engine.t").write_text("error('a reason of its own')\n")
    with pytest.raises(lowering.LoweringError, match="a reason of its own"):
        lowering.lower_all(TERRA, root, tmp_path / "lowered")

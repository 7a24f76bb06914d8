"""terra/lowered and futhark/lowered: what is checked before they are used, and that lowering
gives the same bytes."""

import shutil

import lowering
import pytest
from lowered import LOWERINGS

from futhark import FUTHARK, report_refused_memory
from terra import TERRA
from tests import groups
from tests.build.checkouts import ROOT, small_checkout

each = pytest.mark.parametrize("lowered", LOWERINGS, ids=lambda one: one.tool)
BROKEN = {
    "terra": ("terra/api/exports.t", "error('a reason of its own')\n", "a reason of its own"),
    "futhark": ("futhark/fp8.fut", "def decode = a_name_of_its_own\n", "a_name_of_its_own"),
}


@pytest.fixture
def checkout(tmp_path):
    return small_checkout(tmp_path)


@each
def test_recorded_lowering_has_no_difference(checkout, lowered):
    assert lowered.differences(checkout.path) == []


@pytest.mark.parametrize(
    ("lowered", "name"),
    [
        (TERRA, "terra/api/exports.t"),
        (TERRA, "native/include/glm/answer.h"),
        (TERRA, "terra/lowered/x86-64-v3/debug.ll"),
        (FUTHARK, "futhark/double.fut"),
        (FUTHARK, "futhark/lowered/kernels_cpu.h"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.tool,
)
def test_changed_file_is_named(checkout, lowered, name):
    checkout.change(name)
    assert lowered.differences(checkout.path) == [f"{name} differs from the manifest"]


def test_added_and_removed_sources_are_named(checkout):
    checkout.write("terra/added.t", "return {}\n")
    (checkout.path / "terra/api/exports.t").unlink()
    assert TERRA.differences(checkout.path) == [
        "terra/added.t is not in the manifest",
        "terra/api/exports.t is in the manifest but not in the checkout",
    ]


@each
def test_missing_manifest_is_named(checkout, lowered):
    (checkout.path / lowered.manifest).unlink()
    assert lowered.differences(checkout.path) == [f"{lowered.folder}/manifest.json is missing"]


@each
def test_other_targets_are_a_difference(checkout, lowered, monkeypatch):
    monkeypatch.setitem(lowered.targets, "other", ["--safe"])
    (line,) = lowered.differences(checkout.path)
    assert line.startswith(f"{lowered.manifest} lists other targets than ")


@pytest.mark.parametrize(
    ("target", "name"), [("engine", "terra/api/exports.t"), ("cpu", "futhark/double.fut")]
)
def test_build_stops_and_names_the_file(built_small, target, name):
    before = built_small.change(name)
    try:
        printed = built_small.scons(target, status=2)
    finally:
        (built_small.path / name).write_bytes(before)
        built_small.scons(target)
    assert f"{name} differs from the manifest" in printed
    assert "Run `scons lower`" in printed


@pytest.mark.parametrize(
    "line", ['source_filename = "/elsewhere/engine.t"', '@text = c"{root}/terra/api/exports.t"']
)
def test_local_paths_are_refused(tmp_path, line):
    text = line.replace("{root}", str(tmp_path))
    with pytest.raises(lowering.LoweringError, match="contains the"):
        lowering.forbid_local_paths(text, "release.ll", tmp_path)


def test_a_program_that_allocates_in_another_way_is_refused(tmp_path):
    program = tmp_path / "kernels.c"
    program.write_text("    grab(ctx, &block->mem);\n    if (ctx->error == NULL) {\n")
    with pytest.raises(lowering.LoweringError, match=r"kernels\.c: expected .*, found none"):
        report_refused_memory(program)


def test_lower_leaves_what_is_that_of_its_sources(built_small, monkeypatch):
    monkeypatch.setitem(built_small.variables, "PATH", "/usr/bin:/bin")
    printed = built_small.scons("lower")
    for one in LOWERINGS:
        assert f"{one.folder} already matches the current sources; left unchanged" in printed


@pytest.mark.parametrize(
    ("tool", "name"), [("terra", "terra/api/exports.t"), ("futhark", "futhark/double.fut")]
)
def test_without_the_compiler_lower_says_so(built_small, monkeypatch, tool, name):
    monkeypatch.setitem(built_small.variables, "PATH", "/usr/bin:/bin")
    if shutil.which(tool, path="/usr/bin:/bin"):
        pytest.skip(f"{tool} is installed beside the system's own tools")
    before = built_small.change(name)
    try:
        printed = built_small.scons("lower", status=2)
    finally:
        (built_small.path / name).write_bytes(before)
    assert f"{name} differs from the manifest" in printed
    assert f"`{tool}` is not on the PATH; {tool}/lowered is left unchanged" in printed


def compiler_of(lowered):
    """The compiler; skips the test where it is absent."""
    found = shutil.which(lowered.tool)
    if not found and lowered.tool in groups.PROGRAMS:
        pytest.skip(groups.reason(lowered.tool))
    if not found:
        pytest.skip(f"{lowered.tool} is not on the PATH, and no registry brings it")
    return found


def checkout_of_sources(lowered, path):
    for name in lowered.sources(ROOT):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path / name)
    return path


@each
def test_lowering_again_gives_the_committed_bytes(tmp_path, lowered):
    compiler, wanted = compiler_of(lowered), lowered.recorded(ROOT)["versions"]
    present = lowered.versions(compiler)
    if present != wanted:
        pytest.skip(f"the manifest names {wanted}, here is {present}")
    root = checkout_of_sources(lowered, tmp_path / "a-longer-name/below")
    (root / "again").mkdir()
    lowered.write(compiler, root, root / "again")
    for relative in (*lowered.files, lowered.manifest):
        again = root / "again" / relative.removeprefix(f"{lowered.folder}/")
        assert again.read_bytes() == (ROOT / relative).read_bytes(), relative


@each
def test_error_of_the_compiler_is_passed_on(tmp_path, lowered):
    compiler = compiler_of(lowered)
    root = checkout_of_sources(lowered, tmp_path)
    name, text, reason = BROKEN[lowered.tool]
    (root / name).write_text(text)
    (tmp_path / "again").mkdir()
    with pytest.raises(lowering.LoweringError, match=reason):
        lowered.write(compiler, root, tmp_path / "again")

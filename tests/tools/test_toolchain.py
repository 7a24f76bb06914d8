"""The parts of tools/toolchain, called one by one from a shell."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
TOOLCHAIN = ROOT / "tools" / "toolchain"
TARGETS = """\
mirror:/third bookworm stable
mirror:/security bookworm-security main
mirror:/first bookworm main
mirror:/first bookworm-updates main
mirror:/second trixie main
mirror:/vendor nodistro main
"""


def call(script, *arguments, **variables):
    """Runs shell code after the toolchain's functions are defined."""
    sources = "; ".join(
        f'source "{TOOLCHAIN}/{name}.bash"' for name in ("debian", "launchers", "python", "unused")
    )
    done = subprocess.run(
        ["bash", "-euc", f"{sources}; {script}", "bash", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_archives_are_debian_suites_only(programs, tmp_path):
    (tmp_path / "targets").write_text(TARGETS)
    path = programs(apt_get=f'cat "{tmp_path}/targets"')
    variables = {"PATH": path, "GLM_DEBIAN_ARCHIVE": ""}
    assert call("debian_archives", **variables).split() == ["mirror:/first", "mirror:/second"]


def test_named_archive_comes_before_the_sources(programs):
    variables = {"PATH": programs(apt_get="exit 1"), "GLM_DEBIAN_ARCHIVE": "mirror:/named"}
    assert call("debian_archives", **variables).split() == ["mirror:/named"]


def test_apt_keeps_to_its_own_folder(tmp_path):
    call('write_apt_configuration "$1"', tmp_path)
    lines = (tmp_path / "apt.conf").read_text().splitlines()
    assert f'Dir::State "{tmp_path}";' in lines
    assert f'Dir::State::status "{tmp_path}/status";' in lines
    assert 'Dir::Etc::sourceparts "/dev/null";' in lines
    assert 'APT::Get::AllowUnauthenticated "false";' in lines
    assert (tmp_path / "status").read_text() == ""


def test_links_point_inside_the_tree(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "usr").mkdir()
    (tmp_path / "lib" / "libm.so.6").write_text("library")
    (tmp_path / "usr" / "libm.so").symlink_to("/lib/libm.so.6")
    (tmp_path / "usr" / "outside").symlink_to("/nowhere/at/all")
    call('link_within "$1"', tmp_path)
    assert os.readlink(tmp_path / "usr" / "libm.so") == "../lib/libm.so.6"
    assert os.readlink(tmp_path / "usr" / "outside") == "/nowhere/at/all"


def test_programs_are_told_by_their_first_bytes(tmp_path):
    (tmp_path / "program").write_bytes(b"\x7fELF\x02\x01")
    (tmp_path / "script").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "short").write_bytes(b"\x7fE")
    names = call(
        'cd "$1"; for name in *; do if is_elf "$name"; then echo "$name"; fi; done', tmp_path
    )
    assert names.split() == ["program"]


def test_what_names_a_removed_folder_goes_with_it(tmp_path):
    home = tmp_path / "my project"
    for name in ("python-new", "cuda-new", "cuda-old", "docs-old"):
        (home / name).mkdir(parents=True)
    kept = {"environment-key": "cuda-new", "environment-key-docs": "docs-old"}
    gone = {"environment-key-cuda": "cuda-old", "environment-earlier": "cuda-new"}
    for name, folder in (kept | gone).items():
        call('printf "export CUDA_HOME=%q\\n" "$1" >"$2"', home / folder / "nvidia", home / name)
    script = """
        home=$1 key=key futhark= machine= wheels= nix= clang= chromium=
        venv=$1/python-new overlays=("$1/cuda-new")
        stage() { shift; "$@"; }
        remove_unused
    """
    call(script, home)
    left = {path.name for path in home.iterdir()}
    assert left == {"python-new", "cuda-new", "docs-old", *kept}


def test_scripts_move_with_the_environment(tmp_path):
    tree, final = tmp_path / "tree", tmp_path / "final"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin" / "tool").write_text(f"#!{tree}/bin/python\nprint('{tree}')\n")
    (tree / "bin" / "python").symlink_to("/usr/bin/env")
    (tree / "pyvenv.cfg").write_text(f"command = python -m venv {tree}\n")
    call('move_scripts "$1" "$2"', tree, final)
    assert (tree / "bin" / "tool").read_text() == f"#!{final}/bin/python\nprint('{final}')\n"
    assert str(tree) not in (tree / "pyvenv.cfg").read_text()


def test_compiler_launcher_passes_arguments_on(tmp_path):
    tree = tmp_path / "machine"
    (tree / "bin").mkdir(parents=True)
    (tree / "usr" / "bin").mkdir(parents=True)
    real = tree / "usr" / "bin" / "gcc-12"
    real.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    real.chmod(0o755)
    call('launch_machine "$1" "$1"', tree)
    said = subprocess.run(
        [tree / "bin" / "cc", "-c", "a b.c"], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == [
        f"--sysroot={tree}",
        f"-B{tree}/usr/bin/",
        "-c",
        "a b.c",
    ]


def test_browser_launcher_names_its_own_fonts(tmp_path):
    tree, final = tmp_path / "tree", tmp_path / "final"
    (tree / "bin").mkdir(parents=True)
    call('launch_chromium "$1" "$2"', tree, final)
    browser = final / "usr" / "lib" / "chromium" / "chromium-headless-shell"
    browser.parent.mkdir(parents=True)
    browser.write_text('#!/bin/sh\nprintf "%s\\n" "$FONTCONFIG_FILE" "$@"\n')
    browser.chmod(0o755)
    said = subprocess.run(
        [tree / "bin" / "chromium", "--headless", "a b"], capture_output=True, text=True, check=True
    )
    assert said.stdout.splitlines() == [f"{final}/etc/fonts/browser.conf", "--headless", "a b"]
    fonts = ElementTree.parse(tree / "etc" / "fonts" / "browser.conf").getroot()
    assert fonts.findtext("dir") == f"{final}/usr/share/fonts"
    aliases = {one.findtext("family"): one.findtext("prefer/family") for one in fonts.iter("alias")}
    assert aliases["system-ui"] == aliases["sans-serif"] == "Inter"


def test_foreign_program_is_bound_to_the_libraries_of_a_tree(tmp_path):
    loader = tmp_path / "lib" / "ld-linux-x86-64.so.2"
    loader.parent.mkdir()
    loader.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    loader.chmod(0o755)
    said = call('bind_to_libraries "$1" "$2"', tmp_path, "the program").splitlines()
    libraries = call('library_path "$1"', tmp_path)
    patchelf = ["--library-path", libraries, f"{tmp_path}/usr/bin/patchelf"]
    wanted = ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath", libraries]
    assert said == [*patchelf, *wanted, "the program"]


def test_python_of_another_version_does_not_fit(programs, tmp_path):
    programs(python_other="exit 1")
    code = 'if python_fits "$1"; then echo fits; else echo other; fi'
    assert call(code, tmp_path / "programs" / "python-other") == "other\n"

"""Named targets: help, exit status, arguments, and what a second run does."""

import re

import pytest

from tests.build.checkouts import small_checkout

NAMES = (
    "bench",
    "check",
    "cpu",
    "cuda",
    "engine",
    "futhark_cpu",
    "fuzz",
    "golden",
    "lower",
    "quick",
    "reproduce",
    "smoke",
    "test",
)


def test_help_lists_every_target(built_small):
    printed = built_small.scons("-h").splitlines()
    told = {line.split()[0]: line.split(maxsplit=1)[1:] for line in printed if line[:2] == "  "}
    assert set(NAMES) <= told.keys()
    assert all(told[name] for name in NAMES)


def test_help_names_the_libraries_that_plain_scons_builds(tmp_path):
    checkout = small_checkout(tmp_path)
    plain = checkout.scons("-h").split("scons TARGETS")[0]
    checkout.scons()
    built = {str(path.relative_to(tmp_path)) for path in (tmp_path / "build").rglob("*.so")}
    assert set(re.findall(r"build/\S+\.so", plain)) == built


def test_second_run_builds_nothing(built_small):
    built_small.scons()
    printed = built_small.scons()
    actions = [line for line in printed.splitlines() if not line.startswith("scons:")]
    assert actions == []


def test_test_target_passes_and_counts(built_small):
    assert "1 passed" in built_small.scons("test", "args=-p no:cacheprovider")


def test_test_target_builds_the_libraries_that_only_tests_open(built_small):
    library = built_small.path / "build/libglm_futhark_cpu.so"
    library.unlink(missing_ok=True)
    built_small.scons("test", "args=-n 0 -p no:cacheprovider")
    assert library.is_file()


def test_failing_tests_fail_the_target(built_small):
    name = "tests/test_failing.py"
    built_small.write(name, "def test_failing():\n    assert 1 == 2\n")
    try:
        printed = built_small.scons("test", "args=-n 0 -k failing", status=2)
    finally:
        (built_small.path / name).unlink()
    assert "1 failed, 1 deselected" in printed


def test_smoke_runs_the_package_of_this_checkout(built_small):
    built_small.write("python/glm_engine/__init__.py", "")
    built_small.write(
        "python/glm_engine/__main__.py", "import sys\n\nprint('ran', sys.argv[1:], __file__)\n"
    )
    printed = built_small.scons("smoke")
    assert (
        f"ran ['smoke', '--device', 'cpu'] {built_small.path}/python/glm_engine/__main__.py"
        in printed
    )


@pytest.mark.parametrize("status", [0, 3])
def test_exit_status_of_smoke_decides(built_small, status):
    built_small.write("python/glm_engine/__init__.py", "")
    built_small.write("python/glm_engine/__main__.py", f"raise SystemExit({status})\n")
    built_small.scons("smoke", status=2 if status else 0)

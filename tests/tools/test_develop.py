"""tools/develop: options, when it installs, and what an interrupted or failed run leaves."""

import os
import resource
import shutil
import signal
import time

import pytest

SECOND_RUN_LIMIT = 0.3
FULL = 'echo "Filesystem 1M-blocks Used Available Capacity Mounted"; echo "d 9 4 5 50% /"'
WITH_FUTHARK = ("--with", "futhark", "true")
HANGING_APT = (
    'case "$*" in *indextargets*) echo "file:/archive bookworm main";; '
    '*) touch "${2%/*}/reached"; exec sleep 600;; esac'
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no command given"),
        (["--with", "oracle"], "no command given"),
        (["--with"], "--with needs a group"),
        (
            ["--with", "gpu", "true"],
            "unknown group 'gpu': expected oracle, fuzz, cuda, modal, nix, browser, docs, "
            "services or futhark",
        ),
        (["--wiht", "oracle", "true"], "unknown option '--wiht'"),
        (["--print-environment", "true"], "--print-environment takes no command"),
    ],
)
def test_wrong_options_are_refused(recorded, arguments, message):
    done = recorded.run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert recorded.installs() == []


def test_wrong_group_in_variable_is_refused(recorded):
    done = recorded.run("true", GLM_GROUPS="gpu")
    assert (done.returncode, recorded.installs()) == (2, [])
    assert "unknown group 'gpu'" in done.stderr


def test_help_names_every_group(recorded):
    done = recorded.run("--help")
    assert done.returncode == 0
    groups = ("oracle", "fuzz", "cuda", "modal", "nix", "browser", "services", "futhark")
    assert all(f"  {group} " in done.stdout for group in groups)


def test_installs_once(recorded):
    assert recorded.run("true").returncode == 0
    assert recorded.run("true").returncode == 0
    assert len(recorded.installs()) == 1


def processor_seconds():
    """Time that the children of this process took of processors."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_second_run_starts_at_once(recorded):
    recorded.run("true")
    seconds = []
    for _ in range(5):
        begin = processor_seconds()
        recorded.run("true")
        seconds.append(processor_seconds() - begin)
    assert min(seconds) < SECOND_RUN_LIMIT


def test_command_runs_with_its_arguments_and_status(recorded):
    done = recorded.run("sh", "-c", 'printf "%s|" "$@"; exit 7', "name", "a b", "--with", "$x")
    assert (done.returncode, done.stdout) == (7, "a b|--with|$x|")


def test_command_sees_the_environment(recorded):
    done = recorded.run("--print-environment")
    assert f"GLM_ROOT={recorded.root}" in done.stdout.split("\0")


@pytest.mark.parametrize("name", ["locks/base-3.11.lock", "packages.tsv", "python.bash"])
def test_changed_input_installs_again(recorded, name):
    recorded.run("true")
    path = recorded.toolchain / name
    path.write_bytes(path.read_bytes() + b"\n")
    recorded.run("true")
    assert len(recorded.installs()) == 2


def test_other_files_do_not_matter(recorded):
    recorded.run("true")
    (recorded.root / "README.md").write_text("text")
    recorded.run("true")
    assert len(recorded.installs()) == 1


def test_groups_are_a_set(recorded):
    recorded.run("--with", "oracle,cuda", "true")
    recorded.run("--with=cuda", "--with", "oracle", "true")
    recorded.run("--with", "cuda", "true", GLM_GROUPS="oracle")
    assert [line.split("|")[1] for line in recorded.installs()] == ["cuda oracle"]
    recorded.run("true")
    assert [line.split("|")[1] for line in recorded.installs()] == ["cuda oracle", ""]


def test_vanished_tool_installs_again(recorded):
    recorded.run("true")
    (recorded.root / "tool").unlink()
    assert recorded.run("true").returncode == 0
    assert len(recorded.installs()) == 2


def test_copied_checkout_has_a_toolchain_of_its_own(recorded):
    recorded.run("true")
    copy = recorded.root.with_name("copy")
    shutil.copytree(recorded.root, copy)
    moved = type(recorded)(copy)
    assert f"GLM_ROOT={copy}" in moved.run("--print-environment").stdout.split("\0")


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the run did not get there in 60 s"
        time.sleep(0.02)


def is_working(checkout, besides=()):
    started = checkout.home.glob("partial.*/apt/reached")
    return any(path.parts[-3] not in besides for path in started)


def stop(process, number=signal.SIGINT):
    os.killpg(process.pid, number)
    return process.communicate(timeout=60)


def test_interrupted_run_leaves_nothing_half_made(checkout, programs):
    process = checkout.start(*WITH_FUTHARK, PATH=programs(apt_get=HANGING_APT))
    wait_for(lambda: is_working(checkout))
    stop(process)
    assert process.returncode == 130
    assert checkout.leftovers() == []


def test_killed_run_is_cleared_by_the_next(checkout, programs):
    path = programs(apt_get=HANGING_APT)
    process = checkout.start(*WITH_FUTHARK, PATH=path)
    wait_for(lambda: is_working(checkout))
    first = checkout.leftovers()
    stop(process, signal.SIGKILL)
    assert checkout.leftovers() == first
    process = checkout.start(*WITH_FUTHARK, PATH=path)
    wait_for(lambda: is_working(checkout, besides=first))
    assert not set(first) & set(checkout.leftovers())
    stop(process)
    assert checkout.leftovers() == []


def test_second_run_waits_for_the_first(checkout, programs):
    path = programs(apt_get=HANGING_APT)
    first = checkout.start(*WITH_FUTHARK, PATH=path)
    wait_for(lambda: is_working(checkout))
    second = checkout.start(*WITH_FUTHARK, PATH=path)
    line = second.stderr.readline()
    assert "another run is installing the toolchain" in line
    stop(second)
    stop(first)
    assert checkout.leftovers() == []


def test_full_disk_is_named(checkout, programs):
    path = programs(apt_get=HANGING_APT, df=FULL)
    done = checkout.run(*WITH_FUTHARK, PATH=path)
    assert done.returncode == 1
    assert "has 5 MB free" in done.stderr
    assert "MB are needed" in done.stderr
    assert checkout.leftovers() == []


def test_failed_download_shows_what_apt_said(checkout, programs):
    apt = (
        'case "$*" in *indextargets*) echo "file:/archive bookworm main";; '
        "*) echo E: the archive is away >&2; exit 100;; esac"
    )
    done = checkout.run(*WITH_FUTHARK, PATH=programs(apt_get=apt))
    assert done.returncode == 1
    assert "E: the archive is away" in done.stderr
    assert "GLM_DEBIAN_ARCHIVE" in done.stderr
    assert "from Debian failed with status 1" in done.stderr
    assert checkout.leftovers() == []


def test_no_archive_and_no_futhark(checkout, programs):
    path = programs(apt_get="exit 0", futhark='echo "Futhark 0.24.3."')
    done = checkout.run(*WITH_FUTHARK, PATH=path)
    assert done.returncode == 1
    assert "expected futhark 0.25.27 or a later 0.25 on PATH, found '0.24.3'" in done.stderr
    assert "the apt sources name no Debian archive" in done.stderr


WITHOUT_ARCHIVE = {"apt_get": "exit 0", "apt_cache": '[ "$2" = python3.11 ]'}


@pytest.mark.parametrize(
    ("broken", "packages"),
    [
        (("gcc",), "gcc g++"),
        (("python3.11", "python3.12", "python3"), "python3.11 python3-pip-whl"),
        (("g++", "python3.11", "python3.12", "python3"), "gcc g++ python3.11 python3-pip-whl"),
    ],
)
def test_without_an_archive_what_is_missing_is_named_in_one_line(
    checkout, programs, broken, packages
):
    path = programs(**WITHOUT_ARCHIVE, **dict.fromkeys(broken, "exit 1"))
    done = checkout.run("true", PATH=path, GLM_DEBIAN_ARCHIVE="")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tools/develop: expected gcc, g++ and Python 3.11 or 3.12 on PATH, ")
    assert line.endswith(f"; as root: apt install {packages}")


def test_without_an_archive_the_machines_own_tools_do(checkout, programs):
    """All that is left to bring, and refused for want of room, are the packages of Python."""
    path = programs(apt_get="exit 0", futhark="exit 1", df=FULL)
    done = checkout.run("true", PATH=path, GLM_DEBIAN_ARCHIVE="")
    if "pip's wheel" in done.stderr:
        pytest.skip("the Python of this machine has no wheel of pip: tools/develop brought both")
    assert done.returncode == 1
    assert "has 5 MB free, but 1100 MB are needed" in done.stderr

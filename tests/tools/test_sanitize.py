"""What compute-sanitizer's logs and a library's names are read as; no GPU is needed."""

import _ctypes
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tools.sanitize import __main__ as command
from tools.sanitize import kernels, launches, runs, suite, understood

CLEAN = {
    "memcheck": "========= ERROR SUMMARY: 0 errors\n",
    "racecheck": "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n",
}


def run_of(tool: str | None) -> runs.Run:
    return runs.Run("one", tool, ("true",), {})


@pytest.mark.parametrize("tool", CLEAN)
def test_a_clean_log(tool):
    assert runs.problem_of(run_of(tool), 0, CLEAN[tool]) is None


@pytest.mark.parametrize("tool", CLEAN)
def test_a_clean_log_of_failed_tests(tool):
    assert runs.problem_of(run_of(tool), 1, CLEAN[tool]) == "status 1"


@pytest.mark.parametrize(
    "summary",
    [
        "ERROR SUMMARY: 1 error",
        "ERROR SUMMARY: 10 errors",
        "RACECHECK SUMMARY: 100 hazards displayed (100 errors, 0 warnings)",
        "RACECHECK SUMMARY: 0 hazards displayed (7 errors, 0 warnings)",
    ],
)
def test_errors_are_found(summary):
    text = f"12 passed\n========= {summary}\n"
    assert runs.problem_of(run_of("racecheck"), 0, text) == summary


def test_a_tool_that_said_nothing_is_a_failure():
    assert "no summary" in runs.problem_of(run_of("memcheck"), 0, "12 passed\n")
    assert runs.problem_of(run_of(None), 0, "12 passed\n") is None


def goes_on(number):
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_does_not_end_is_a_failure(tmp_path):
    number = tmp_path / "number"
    slow = runs.Run("slow", None, ("sh", "-c", f"sleep 600 & echo $! > {number}; wait"), {})
    assert runs.execute(slow, tmp_path, 2).problem == "not done in 2 s"
    until = time.monotonic() + 60
    while goes_on(int(number.read_text())):
        assert time.monotonic() < until, "a child of the process went on"
        time.sleep(0.02)


def test_names_of_kernels_do_not_depend_on_the_demangler():
    wanted = "void a::(anonymous namespace)::k<0, 3, a::S<1, 2>>"
    for name in (
        "void a::(anonymous namespace)::k<false, 3, a::S<1, 2> >(int const*, f (*)(int))",
        "void a::<unnamed>::k<(bool)0, (int)3, a::S<(int)1, (int)2>>(const int *, f (*)(int))",
    ):
        assert kernels.plain(name) == wanted
    assert kernels.plain("k") == "k"
    assert kernels.plain("a::(anonymous namespace)::k()") == "a::(anonymous namespace)::k"


def test_kernels_that_an_h200_cannot_run_are_left_out(monkeypatch):
    names = [
        "void cutlass::device_kernel<glm::kernels::blackwell::GroupedProduct<float, float>>(P)",
        "glm::kernels::blackwell::list_groups_kernel(Product, Groups)",
        "glm::kernels::(anonymous namespace)::gather(GatherArgs)",
    ]
    monkeypatch.setattr(kernels, "mangled", lambda _: [])
    monkeypatch.setattr(kernels, "demangled", lambda _: names)
    assert kernels.kernels_of(Path()) == {"glm::kernels::(anonymous namespace)::gather"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("void glm::kernels::stream::split_product<1>(glm::Product)", True),
        ("void cutlass::device_kernel<glm::kernels::blackwell::Product>(int)", False),
        ("_INTERNAL_8998d013_2_cu::cuda::std::__4::in_place", False),
    ],
)
def test_which_names_are_kernels_that_run(name, expected):
    assert kernels.is_run(name) is expected


def test_names_come_from_read_only_data(tmp_path):
    assert b"\0" in kernels.read_only_data(Path(_ctypes.__file__).read_bytes())
    other = tmp_path / "text"
    other.write_text("text")
    with pytest.raises(kernels.LibraryError, match="expected a 64-bit ELF file"):
        kernels.mangled(other)


def test_every_test_is_in_one_share():
    names = [str(number) for number in range(13)]
    parts = suite.shares(names, 5)
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert {len(part) for part in parts} == {2, 3}
    assert suite.shares(names[:2], 5) == [["0"], ["1"]]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], ["memcheck", "racecheck", "initcheck"]),
        (["--tool", "racecheck"], ["racecheck"]),
        (["--tool", "initcheck", "--tool", "memcheck"], ["initcheck", "memcheck"]),
        (["--no-smoke"], []),
    ],
)
def test_which_tools_see_the_smoke(given, expected):
    assert [run.tool for run in command.smokes(command.arguments(given))] == expected


def test_exchanges_run_under_each_tool_and_are_listed(tmp_path):
    tools = ["memcheck", "racecheck", "initcheck"]
    planned = command.exchanges(command.arguments([]), tmp_path)
    assert [run.tool for run in planned] == [*tools, None]
    assert all(set(suite.EXCHANGES) <= set(run.command) for run in planned)
    assert planned[-1].variables[launches.VARIABLE].startswith(str(tmp_path / command.LAUNCHED))
    chosen = command.arguments(["--tool", "memcheck", "--no-launches"])
    assert [run.tool for run in command.exchanges(chosen, tmp_path)] == ["memcheck"]


def test_the_exchanges_are_tests_of_several_ranks():
    found = subprocess.run(
        [*suite.PYTEST, "--collect-only", *suite.EXCHANGES],
        cwd=runs.ROOT,
        env=runs.child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line for line in found.stdout.splitlines() if "::" in line]
    for test in suite.EXCHANGES:
        ranks = {name.split("-")[-1] for name in names if name.startswith(test)}
        assert ranks == {"1]", "2]", "4]", "8]"}


@pytest.mark.parametrize(("visible", "first"), [(None, "0"), ("3,5", "3"), ("", "")])
def test_processes_see_one_gpu(monkeypatch, visible, first):
    monkeypatch.delenv(runs.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(runs.VISIBLE, visible)
    assert runs.variables_of(run_of("memcheck"))[runs.VISIBLE] == first


def test_kernels_between_gpus_are_named_and_not_missed(monkeypatch, tmp_path, capsys):
    spaces = "glm::collectives::(anonymous namespace)"
    between, launched, missed = (f"{spaces}::{name}" for name in ("gather_blocks<uint4>", "a", "b"))
    monkeypatch.setattr(kernels, "kernels_of", lambda _: {between, launched, missed})
    (tmp_path / f"{command.LAUNCHED}exchanges.txt").write_text(f"{launched}\n")
    assert command.not_launched(tmp_path) == [missed]
    assert f"runs only between GPUs: {between}" in capsys.readouterr().out


def test_without_the_tool_one_line_says_so(monkeypatch, capsys):
    monkeypatch.setenv(runs.PROGRAM_VARIABLE, "no-such-program")
    assert command.main([]) == 2
    assert "expected no-such-program on the PATH" in capsys.readouterr().err


KERNEL = "void glm::kernels::<unnamed>::decode_attention_kernel<S<(int)2, (int)1>>(Arguments)"
OTHER = "void glm::kernels::prefill::product_kernel<(int)2>(Product)"
CODES = {0x10: "UBLKCP", 0x20: "LDSM", 0x30: "LDSM", 0x40: "STS", 0x50: "LDS"}


EXPERTS = "void glm::kernels::mixture::<unnamed>::experts_kernel<(int)2, (int)128>(Parameters)"
EXPERTS_CODES = {
    0x10: "LDS",
    0x20: understood.BLOCK_BARRIER,
    0x30: "LDS",
    0x40: "UBLKCP",
    0x50: "LDSM",
}


def log_of(*reports, displayed: int | None = None) -> str:
    lines = ["..F."]
    for kernel, write, *reads in reports:
        lines.append(f".========= Error: Race reported between Write access at {kernel}+{write:#x}")
        lines += [
            f"=========     and Read access at {kernel}+{read:#x} [16 hazards]" for read in reads
        ]
        lines.append("=========")
    count = len(reports) if displayed is None else displayed
    summary = f"{count} hazards displayed ({count} errors, 0 warnings)"
    return "\n".join([*lines, f"========= RACECHECK SUMMARY: {summary}", ""])


def counted(text: str) -> int | None:
    return understood.count(text, lambda _: CODES)


def test_the_form_that_is_understood():
    text = log_of((KERNEL, 0x10, 0x20, 0x30), (KERNEL, 0x10, 0x30))
    assert counted(text) == 2
    assert understood.count(text, lambda _: {}) is None, "without a disassembly nothing is"


def test_stores_that_a_fence_follows_are_of_the_form():
    text = log_of((KERNEL, 0x10, 0x20)).replace("Read access", "Write access")
    copies = {0x10: "UBLKCP", 0x20: "STS", 0x30: "FENCE", 0x40: "SYNCS"}
    assert understood.count(text, lambda _: copies) == 1
    assert understood.count(text, lambda _: copies | {0x30: "SYNCS", 0x40: "FENCE"}) is None
    assert understood.count(text, lambda _: copies | {0x10: "STS"}) is None
    assert understood.count(text, lambda _: copies | {0x20: "STG"}) is None


@pytest.mark.parametrize(
    "text",
    [
        log_of((KERNEL, 0x40, 0x20)),
        log_of((KERNEL, 0x10, 0x50)),
        log_of((KERNEL, 0x10, 0x20), (KERNEL, 0x10, 0x20, 0x50)),
        log_of((KERNEL, 0x10, 0x60)),
        log_of((OTHER, 0x10, 0x20)),
        log_of((KERNEL, 0x10, 0x20), displayed=2),
        log_of((KERNEL, 0x10, 0x20)) + log_of((KERNEL, 0x10, 0x20)),
        log_of((KERNEL, 0x10, 0x20)) + "========= Potential invalid __shared__ write of size 4\n",
        log_of((KERNEL, 0x10, 0x20)).replace("1 errors", "2 errors"),
        log_of((KERNEL, 0x10, 0x20)).replace("0 warnings", "1 warnings"),
        log_of(),
    ],
    ids=range(11),
)
def test_every_other_report_stays_an_error(text):
    assert counted(text) is None


def test_reports_count_only_where_the_tests_passed(monkeypatch):
    monkeypatch.setattr(runs.understood, "opcodes", lambda *_: CODES)
    text = log_of((KERNEL, 0x10, 0x20))
    assert runs.problem_of(run_of("racecheck"), runs.ERROR_STATUS, text) is None
    assert runs.problem_of(run_of("racecheck"), 1, text) is not None
    assert runs.problem_of(run_of("memcheck"), runs.ERROR_STATUS, text) is not None


def test_instructions_of_a_disassembly():
    text = """
        /*ccb0*/                   PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x0 ;    /* 0x000fd8 */
                                                                               /* 0x000fe2 */
        /*ccc0*/                   @!UP0 UBLKCP.S.G [UR10], [UR8], UR4 ;       /* 0x000006 */
        /*48d0*/                   LDSM.16.M88.4 R128, [R128] ;                /* 0x000000 */
    """
    assert understood.opcodes_of(text) == {0xCCB0: "PLOP3", 0xCCC0: "UBLKCP", 0x48D0: "LDSM"}
    text = """
        /*2570*/                   BAR.SYNC.DEFER_BLOCKING 0x1, 0x100 ;        /* 0x004400 */
        /*3720*/               @P0 BAR.SYNC.DEFER_BLOCKING 0x0 ;               /* 0x000000 */
        /*3730*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;               /* 0x000000 */
    """
    barrier = understood.BLOCK_BARRIER
    assert understood.opcodes_of(text) == {0x2570: "BAR", 0x3720: "BAR", 0x3730: barrier}


SEEN = """========= Error: Race reported between Write access at void \
glm::kernels::mixture::<unnamed>::experts_kernel<(int)2, (int)128, (int)32>\
(glm::kernels::mixture::ExpertsParameters)+0x28fc0
=========     and Read access at void \
glm::kernels::mixture::<unnamed>::experts_kernel<(int)2, (int)128, (int)32>\
(glm::kernels::mixture::ExpertsParameters)+0x2d60 [8 hazards]
=========     and Read access at void \
glm::kernels::mixture::<unnamed>::experts_kernel<(int)2, (int)128, (int)32>\
(glm::kernels::mixture::ExpertsParameters)+0x2d70 [4 hazards]
=========
======================                                          [100%]
31 passed in 58.87s
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


def test_the_report_as_it_was_seen():
    codes = {0x2D60: "LDS", 0x2D70: "LDS", 0x3730: understood.BLOCK_BARRIER, 0x28FC0: "UBLKCP"}
    assert understood.count(SEEN, lambda _: codes) == 1
    assert understood.count(SEEN, lambda _: codes | {0x3730: "BAR"}) is None


def test_loads_before_a_barrier_of_the_block():
    def counted_experts(*reports) -> int | None:
        return understood.count(log_of(*reports), lambda _: EXPERTS_CODES)

    assert counted_experts((EXPERTS, 0x40, 0x10)) == 1
    assert counted_experts((EXPERTS, 0x40, 0x30)) is None
    assert counted_experts((EXPERTS, 0x40, 0x10, 0x30)) is None
    assert counted_experts((EXPERTS, 0x40, 0x50)) is None
    assert counted_experts((EXPERTS, 0x10, 0x30)) is None

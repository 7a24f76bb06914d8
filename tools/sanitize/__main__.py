"""`python -m tools.sanitize`: compute-sanitizer over every kernel of the CUDA library."""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tools.sanitize import kernels, launches, runs, suite

LISTENERS = 2
LAUNCHED = "launched-"
SHARES = {"memcheck": 2, "racecheck": 5, "initcheck": 2}


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.sanitize", description=__doc__)
    parser.add_argument(
        "--tool", action="append", choices=runs.TOOLS, help="run only this tool (repeatable)"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="number of parallel processes"
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="time limit per process in seconds"
    )
    parser.add_argument("--no-smoke", action="store_true", help="skip `glm smoke`")
    parser.add_argument(
        "--no-launches", action="store_true", help="do not list the kernels that were launched"
    )
    parser.add_argument("--output", type=Path, help="folder for the logs")
    return parser.parse_args(given)


def smokes(options: argparse.Namespace) -> list[runs.Run]:
    return [] if options.no_smoke else [runs.smoke(tool) for tool in options.tool or runs.TOOLS]


def exchanges(options: argparse.Namespace, folder: Path) -> list[runs.Run]:
    """2, 4 and 8 ranks on one GPU, under each tool and then with their launches listed."""
    command = (*suite.PYTEST, *suite.EXCHANGES)
    found = [
        runs.Run(f"{tool} exchanges", tool, command, {}) for tool in options.tool or runs.TOOLS
    ]
    return found if options.no_launches else [*found, listening("exchanges", command, folder)]


def listening(name: str, command: Sequence[str], folder: Path) -> runs.Run:
    variables = {launches.VARIABLE: str(folder / f"{LAUNCHED}{name}.txt")}
    command = (*command, "-p", "tools.sanitize.launches")
    return runs.Run(f"launches {name}", None, command, variables)


def planned(options: argparse.Namespace, folder: Path) -> list[runs.Run]:
    tests, wanted, found = suite.listed(), options.tool or runs.TOOLS, []
    if not options.no_launches:
        for number, share in enumerate(suite.shares(tests, LISTENERS)):
            found.append(listening(str(number), (*suite.PYTEST, *share), folder))
    for tool in wanted:
        for number, share in enumerate(suite.shares(tests, SHARES[tool])):
            few_workers = runs.SHARE_OPTIONS.get(tool, ())
            command = (*suite.PYTEST, *share)
            found.append(runs.Run(f"{tool} {number}", tool, command, {}, few_workers))
    return found


def not_launched(folder: Path) -> list[str]:
    files = folder.glob(f"{LAUNCHED}*.txt")
    seen = {kernels.plain(name) for file in files for name in file.read_text().splitlines()}
    wanted = kernels.kernels_of(runs.library())
    print(f"kernels   {len(wanted)} in the library, {len(wanted & seen)} launched")
    missed = sorted(wanted - seen)
    for name in filter(kernels.waits_for_other_gpus, missed):
        print(f"runs only between GPUs: {name}")
    return [name for name in missed if not kernels.waits_for_other_gpus(name)]


def failures(wanted: list[runs.Run], options: argparse.Namespace, folder: Path, jobs: int) -> int:
    """How many of the processes failed; each is reported as it ends."""
    failed = 0
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        pending = [pool.submit(runs.execute, each, folder, options.seconds) for each in wanted]
        for done in as_completed(pending):
            outcome = done.result()
            failed += outcome.problem is not None
            verdict = outcome.problem or "no error"
            if outcome.num_understood:
                verdict += f" except {outcome.num_understood} reports of a known kind"
            print(f"{outcome.name:19} {outcome.seconds:6.1f} s  {verdict}", flush=True)
    return failed


def run(options: argparse.Namespace, folder: Path) -> int:
    """How many processes failed and kernels were missed."""
    alone = [*smokes(options), *exchanges(options, folder)]
    failed = failures(alone, options, folder, 1)
    failed += failures(planned(options, folder), options, folder, options.jobs)
    if options.no_launches:
        return failed
    missed = not_launched(folder)
    for name in missed:
        print(f"not launched: {name}")
    return failed + len(missed)


def main(given: list[str]) -> int:
    options = arguments(given)
    try:
        runs.program()
        with tempfile.TemporaryDirectory() as empty:
            folder = options.output or Path(empty)
            folder.mkdir(parents=True, exist_ok=True)
            for kept in folder.glob(f"{LAUNCHED}*.txt"):
                kept.unlink()
            return int(run(options, folder) > 0)
    except (runs.MissingToolError, suite.SuiteError, kernels.LibraryError) as error:
        print(f"tools.sanitize: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command line: `python tools/check [--list] [PATHS]`."""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tools.check.files import Outcome, check_files, tracked_files
from tools.check.settings import load_settings

ROOT = Path(__file__).resolve().parents[2]
CLEAN, VIOLATIONS, UNUSABLE = 0, 1, 2


def main(arguments: Sequence[str]) -> int:
    """Check the tree or the given paths; 0 clean, 1 violations, 2 cannot run."""
    options = parser().parse_args(arguments)
    settings = load_settings()
    root = options.root.resolve()
    try:
        paths = options.paths or tracked_files(root, settings.skipped_folders)
        outcome = check_files(root, [relative(path, root) for path in paths], settings)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"tools/check: {error}", file=sys.stderr)
        return UNUSABLE
    report(outcome, options.list)
    return VIOLATIONS if outcome.violations else CLEAN


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog="tools/check",
        description="Reject comments, banned words and machine paths in sources.",
    )
    result.add_argument(
        "paths", nargs="*", help="files to check (default: all files of the checkout)"
    )
    result.add_argument("--root", type=Path, default=ROOT, help="root folder of the checkout")
    result.add_argument("--list", action="store_true", help="print the name of every checked file")
    return result


def relative(name: str, root: Path) -> str:
    path = Path(name)
    return path.resolve().relative_to(root).as_posix() if path.is_absolute() else str(path)


def report(outcome: Outcome, name_files: bool) -> None:
    for violation in outcome.violations:
        print(violation)
    total = sum(len(paths) for paths in outcome.files_by_language.values())
    for language, paths in sorted(outcome.files_by_language.items()):
        print(f"{len(paths):6}  {language}")
        if name_files:
            print("".join(f"          {path}\n" for path in paths), end="")
    print(f"{total:6}  files, {len(outcome.violations)} violations")

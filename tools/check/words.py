"""A budget of words: `python -m tools.check.words [--write]`, over the numbers of words.toml."""

import argparse
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.check.files import tracked_files

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = "tools/check/words.toml"
STEP = 50
MISSING = f"give this file a number in {NUMBERS} and lower another's"
EXCEEDED = (
    "move the history to docs/notebook.md as one row, "
    f"or raise this file's number in {NUMBERS} and lower another's"
)


@dataclass(frozen=True)
class Budget:
    """The limit of all numbers together, the number of each file, and the pages outside it."""

    limit: int
    generated: list[str]
    files: dict[str, int]


def read_budget(root: Path) -> Budget:
    return Budget(**tomllib.loads((root / NUMBERS).read_text(encoding="utf-8")))


def count_words(root: Path, budget: Budget) -> dict[str, int]:
    """Words of every Markdown file that git tracks and no program writes."""
    tracked = [name for name in tracked_files(root, ()) if name.endswith(".md")]
    return {
        name: len((root / name).read_text(encoding="utf-8").split())
        for name in tracked
        if name not in budget.generated
    }


def complaints(words: Mapping[str, int], budget: Budget) -> Iterator[str]:
    """One line for each file or sum that breaks the budget."""
    for name, count in words.items():
        number = budget.files.get(name)
        if number is None:
            yield f"{name}: {count} words, no budget: {MISSING}"
        elif count > number:
            yield f"{name}: {count} words, budget {number}: {EXCEEDED}"
    for name in sorted(budget.files.keys() - words.keys()):
        yield f"{NUMBERS}: {name} is not a tracked document: remove its number"
    total = sum(budget.files.values())
    if total > budget.limit:
        yield f"{NUMBERS}: the numbers sum to {total}, limit {budget.limit}: lower some of them"


def budget_text(words: Mapping[str, int], budget: Budget) -> str:
    """words.toml with a number for each file: its words, rounded up."""
    rows = [f'"{name}" = {-(-count // STEP) * STEP}' for name, count in words.items()]
    generated = "".join(f'  "{name}",\n' for name in budget.generated)
    head = f"limit = {budget.limit}\ngenerated = [{generated and chr(10)}{generated}]\n"
    return "\n".join([head, "[files]", *rows, ""])


def main(arguments: Sequence[str]) -> int:
    """Checks the budget, or writes the present counts as the numbers; 1 when it is broken."""
    parser = argparse.ArgumentParser(prog="python -m tools.check.words", description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="root folder of the checkout")
    parser.add_argument("--write", action="store_true", help="write the counts to words.toml")
    options = parser.parse_args(arguments)
    budget = read_budget(options.root)
    words = count_words(options.root, budget)
    if options.write:
        (options.root / NUMBERS).write_text(budget_text(words, budget), encoding="utf-8")
        budget = read_budget(options.root)
    found = list(complaints(words, budget))
    print("\n".join([*found, f"{sum(words.values())} words in {len(words)} documents"]))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

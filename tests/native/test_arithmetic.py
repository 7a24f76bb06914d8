"""The tables of native/kernels/README.md beside the plan of products and the constants."""

import re
import subprocess
from pathlib import Path

import pytest

from tests import shapes

REPOSITORY = Path(__file__).resolve().parents[2]
KERNELS = REPOSITORY / "native" / "kernels"
PROGRAM = REPOSITORY / "build" / "tests" / "parts"
PAGE = (KERNELS / "README.md").read_text()
PLACE = re.compile(r"`(\w+)` of `([\w./]+)`")
NUM_DRAWN = 200


def table_below(heading: str) -> list[list[str]]:
    """Cells of the rows of the table below a heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


MATRICES = table_below("Parts of a matrix")
NUMBERS = table_below("Numbers that bits hang on")


def planned_parts(matrices: list[str]) -> list[list[str]]:
    """For "dtype role rows columns" each: parts of the first and last row tile, and "planned" where
    the plans of 1 to 256 rows cut every row tile so."""
    done = subprocess.run(
        [PROGRAM], input="\n".join(matrices), capture_output=True, text=True, check=True
    )
    return [line.split(" ", 2) for line in done.stdout.splitlines()]


def test_parts_of_the_matrices():
    given = [" ".join(cells[1:5]) for cells in MATRICES]
    expected = [[cells[5], cells[5], "planned"] for cells in MATRICES]
    assert planned_parts(given) == expected
    assert {cells[5] for cells in MATRICES} >= {"1", "2", "3", "4", "8"}


def test_every_number_of_rows_cuts_a_matrix_alike():
    rng = shapes.generator("parts")
    drawn = [
        f"{dtype} {role} {2 * rng.integers(1, 16000)} {rng.integers(1, 13000)}"
        for dtype in ("FP8", "BF16")
        for role in ("LINEAR", "GATE_UP")
        for _ in range(NUM_DRAWN // 4)
    ]
    answered = planned_parts(drawn)
    wrong = [matrix for matrix, cells in zip(drawn, answered, strict=True) if cells[2] != "planned"]
    assert wrong == []


@pytest.mark.parametrize(("value", "place"), [cells[1:] for cells in NUMBERS])
def test_a_number_is_the_constant_it_names(value, place):
    name, file = PLACE.fullmatch(place).groups()
    text = (KERNELS / file).read_text()
    found = re.search(rf"constexpr u?int32_t {name}(?:\[\w+\])? =\s*\{{?\s*(\d+)", text)
    assert found is not None, f"no {name} in {file}"
    assert found.group(1) == value

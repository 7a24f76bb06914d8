"""The tests that reach every kernel and every path of one, and how they are shared out."""

import subprocess
import sys
from collections.abc import Sequence

from tools.bench.processes import ROOT, child_environment

SELECTIONS = (
    "tests/native/test_each_kernel.py",
    "tests/native/test_pages.py",
    "tests/native/test_streams.py::test_events_measure_the_time_between_them",
    "tests/native/test_streams.py::test_queued_downloads_are_there_after_their_event",
    "tests/native/test_streams.py::test_sampled_ids_are_fed_back",
    "tests/native/test_streams.py::test_random_weights",
    "tests/native/test_streams.py::test_the_rate_of_reading",
    "tests/native/test_host_copies.py::test_copies_keep_the_order_in_which_they_are_queued",
    "tests/native/test_host_copies.py::test_a_captured_upload_reads_the_host_again_at_each_replay",
    "tests/native/test_graphs.py",
    "tests/native/test_begin_drafts.py::test_a_kept_draft_is_the_second_row_of_the_next_step",
    "tests/native/test_begin_drafts.py::test_rows_follow_what_was_sampled[65-2]",
    "tests/native/test_packed_layout.py::test_placed_rows[130x65-bf16-gate_up]",
    "tests/native/test_packed_layout.py::test_placed_rows[128x64-fp8-table]",
    "tests/native/test_packed_layout.py::test_placed_rows[26x13-f32-table]",
    "tests/native/test_sampling.py::test_count_tokens",
    "tests/native/test_sampling.py::test_each_control_draws_the_oracles_token[everything-131]",
    "tests/native/test_sampling.py::test_each_control_draws_the_oracles_token[everything-132]",
    "tests/native/test_sampling.py::test_each_control_draws_the_oracles_token[greedy-132]",
    "tests/native/test_past_tiles.py::test_routes_with_a_shared_expert[13]",
    "tests/native/test_shared_expert.py::test_it_runs_beside_the_routed_experts[small-fp8]",
)
EXCHANGES = (
    "tests/native/test_collectives.py::test_reduced_rows_are_those_of_one_rank",
    "tests/native/test_collectives.py::test_scattered_rows_are_those_that_all_ranks_have",
    "tests/native/test_collectives.py::test_all_gather_joins_rows",
    "tests/native/test_collectives.py::test_all_to_all_gives_each_rank_its_rows_of_all",
)
PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "--device-kind=cuda",
    "--ranks-per-device=8",
    "--import-mode=importlib",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:randomly",
)


class SuiteError(Exception):
    """The tests cannot be listed."""


def listed() -> list[str]:
    """Node ids of the suite, as pytest collects them."""
    command = [*PYTEST, "--collect-only", *SELECTIONS]
    found = subprocess.run(
        command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False
    )
    names = [line for line in found.stdout.splitlines() if "::" in line]
    if found.returncode or not names:
        raise SuiteError(f"expected a list of tests, got {found.stdout[-2000:]}{found.stderr}")
    return names


def shares(names: Sequence[str], count: int) -> list[list[str]]:
    """`count` lists of about equal length; tests that follow each other go to different ones."""
    return [list(names[first::count]) for first in range(min(count, len(names)))]

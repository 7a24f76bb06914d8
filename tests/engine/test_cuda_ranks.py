"""Ranks on GPUs: one course of a step as good as another, and one rank's fault ends all in time.

Each fault has a process of its own, which prints what the engine says and how long that took.
`--ranks-per-device` lets several ranks share a GPU where there are fewer GPUs than ranks.
"""

import json
import os
import subprocess
import sys
import time

import pytest

from glm_engine.core.engine import Engine, EngineOptions, Request
from glm_engine.core.errors import EngineError
from tests.devices import SHARING_VARIABLE, VARIABLE, chosen_options, device_kind, expect_ranks
from tests.engine import failing_device
from tests.engine.probes import ROOT
from tests.engine.running import run_requests
from tests.engine.test_cuda import COURSES, break_the_device, make_requests
from tests.reference.capitals import CAPITALS

CUDA = ROOT / "build" / "libglm_cuda.so"
MOST_SECONDS = 5
NUM_REQUESTS = 3
MOE_LAYERS = 3
ONCE_A_STEP = ("sample", "all_to_all")
LAYOUTS = ("tensor_parallel", "expert_parallel")

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(device_kind() != "cuda", reason="--device-kind cuda runs it"),
]


def engine_of(world_size: int, **options) -> Engine:
    defaults = {"max_batch": 8, "max_seq": 128}
    chosen = chosen_options(world_size, **{**defaults, **options})
    return Engine(EngineOptions(CAPITALS, **chosen))


def outcome_of(world_size: int, **options) -> list:
    with engine_of(world_size, **options) as engine:
        done = run_requests(engine, make_requests())
    return [(one.tokens, [(e.logprob, e.top_logprobs) for e in one.events]) for one in done]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_every_course_gives_the_same_bits(world_size, layout):
    plain, *others = [outcome_of(world_size, expert_layout=layout, **course) for course in COURSES]
    for course, other in zip(COURSES[1:], others, strict=True):
        assert other == plain, f"{course} differs from plain steps"


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_alone_and_among_strangers_gives_the_same_bits(world_size):
    together = outcome_of(world_size)
    with engine_of(world_size) as engine:
        for request, expected in zip(make_requests(), together, strict=True):
            assert run_requests(engine, [request])[0].tokens == expected[0]


def open_armed(world_size: int, **options) -> Engine:
    failing_device.arm(kind="cuda", inner=CUDA)
    return engine_of(world_size, library_dir=failing_device.FOLDER, **options)


def fail_an_operation(world_size: int, rank: int, operation: str, hangs: bool) -> None:
    """The body of a process: one call of an operation fails, or never comes back."""
    engine = open_armed(world_size)

    def arm() -> None:
        failing_device.library("cuda").failing_hang(hangs)
        call = 0 if operation in ONCE_A_STEP else MOE_LAYERS - 1
        failing_device.arm(rank, operation, call, kind="cuda", inner=CUDA)

    tell_what_comes(engine, arm)


def lose_a_rank(world_size: int, ordinal: int, checks_operations: bool) -> None:
    """The body of a process: a GPU's context is lost between two steps. The contexts of GPUs that
    reach its memory are lost with it, with the same error, so every rank that failed is named."""
    engine = engine_of(world_size, check_operations=checks_operations)
    tell_what_comes(engine, lambda: break_the_device(ordinal))


def tell_what_comes(engine: Engine, fault) -> None:
    """Prints the ends of requests in flight, of one refused after them, and the seconds."""
    run_requests(engine, make_requests())
    for index in range(NUM_REQUESTS):
        engine.submit(Request([1, 2, 3 + index], max_tokens=100, ignore_eos=True))
    fault()
    began, ends = time.monotonic(), []
    late = [Request([4, 5, 6], max_tokens=100, ignore_eos=True) for _ in range(NUM_REQUESTS)]
    refusals = [refusal for request in late if (refusal := submit(engine, request))]
    while len(ends) + len(refusals) < 2 * NUM_REQUESTS:
        engine.wait(0.1)
        ends += [event for event in engine.poll() if event.ends_request]
        if time.monotonic() - began > 60:
            break
    told = {
        "seconds": time.monotonic() - began,
        "failed": [event.message for event in ends if event.kind == "failed"],
        "finished": sum(event.kind == "finished" for event in ends),
        "refusal": submit(engine, late[0]),
        "is_usable": engine.info()["is_usable"],
    }
    print(json.dumps(told), flush=True)
    os._exit(0)


def submit(engine: Engine, request: Request) -> str:
    """Why the engine does not take the request; empty where it does."""
    try:
        engine.submit(request)
    except EngineError as error:
        return str(error)
    return ""


def told_by(call: str) -> dict:
    sharing = os.environ.get(SHARING_VARIABLE, "1")
    variables = {VARIABLE: "cuda", SHARING_VARIABLE: sharing}
    result = subprocess.run(
        [sys.executable, "-c", f"from tests.engine import test_cuda_ranks as t; t.{call}"],
        cwd=ROOT,
        env={**os.environ, **variables, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    print(result.stdout, result.stderr)
    return json.loads(result.stdout.splitlines()[-1])


def check_end(told: dict, words: str) -> None:
    assert told["seconds"] < MOST_SECONDS
    assert told["failed"]
    for message in told["failed"]:
        assert words in message
    assert "the engine cannot continue" in told["refusal"]
    assert told["is_usable"] == 0


@pytest.mark.parametrize(
    ("world_size", "rank", "operation"),
    [
        (2, 1, "experts"),
        (2, 0, "sample"),
        (2, 1, "reduce_add_norm_quantise"),
        (2, 0, "all_to_all"),
        (4, 3, "linear"),
    ],
)
def test_a_failing_operation_ends_all_ranks(world_size, rank, operation):
    expect_ranks(world_size)
    told = told_by(f"fail_an_operation({world_size}, {rank}, {operation!r}, False)")
    check_end(told, f"{operation} failed")
    assert all(f"on rank {rank}" in message for message in told["failed"])


@pytest.mark.parametrize(("world_size", "rank"), [(2, 0), (2, 1), (4, 2)])
def test_a_rank_that_hangs_is_named(world_size, rank):
    expect_ranks(world_size)
    told = told_by(f"fail_an_operation({world_size}, {rank}, 'experts', True)")
    check_end(told, f"rank {rank}")


@pytest.mark.parametrize("checks_operations", [False, True])
@pytest.mark.parametrize("ordinal", [0, 1])
def test_a_lost_context_ends_all_ranks(ordinal, checks_operations):
    expect_ranks(2)
    if chosen_options(2)["ranks_per_device"] > 1:
        pytest.skip("ranks of one GPU lose their context together")
    told = told_by(f"lose_a_rank(2, {ordinal}, {checks_operations})")
    check_end(told, f"on rank {ordinal}")

"""The engine on a GPU: one course of a step as good as another, refusals, a device that is lost."""

import ctypes
import os
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, Request, Sampling, find_gpus
from glm_engine.core.errors import GlmError
from glm_engine.verify.device import library_path
from tests.engine.probes import ROOT
from tests.engine.running import run_requests

CAPITALS = ROOT / "checkpoints" / "capitals"
COURSES = [
    {"graphs": False, "plan_ahead": False},
    {"graphs": True, "plan_ahead": False},
    {"graphs": False, "plan_ahead": True},
    {"graphs": True, "plan_ahead": True},
]
FAULT = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry fault() { trap; ret; }
\0"""


@cache
def num_gpus() -> int:
    try:
        return find_gpus()["num_gpus"]
    except GlmError:
        return 0


pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(num_gpus() == 0, reason="no GPU that the driver knows"),
]


def engine_on(kind: str, **options) -> Engine:
    defaults = {"max_batch": 4, "max_seq": 128}
    return Engine(EngineOptions(CAPITALS, device=kind, **{**defaults, **options}))


def glm(*arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **variables}
    command = [sys.executable, "-m", "glm_engine", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def refused(*arguments, **variables) -> str:
    result = glm(*arguments, **variables)
    assert result.returncode != 0
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr


def make_requests() -> list[Request]:
    drawn = Sampling(temperature=0.8, top_k=20, repetition_penalty=1.2, seed=5)
    listed = Sampling(num_logprobs=3)
    return [
        Request([11, 12, 13], max_tokens=24, ignore_eos=True),
        Request([7, 8], max_tokens=17, sampling=drawn, ignore_eos=True),
        Request(
            list(range(40, 90)),
            max_tokens=9,
            sampling=listed,
            ignore_eos=True,
            num_prompt_logprobs=3,
        ),
        Request([5] * 33, max_tokens=30, biases={99: 1.5}, ignore_eos=True),
        Request([9, 8, 7, 6], max_tokens=12, ignore_eos=True),
    ]


def outcome_of(course) -> list:
    with engine_on("cuda", **course) as engine:
        done = run_requests(engine, make_requests())
        info = engine.info()
        assert (info["num_graph_steps"] > 0) == course["graphs"]
    return [
        (one.tokens, [(e.logprob, e.top_logprobs) for e in one.prompt_events + one.events])
        for one in done
    ]


def test_every_course_gives_the_same_bits():
    plain, *others = [outcome_of(course) for course in COURSES]
    for course, other in zip(COURSES[1:], others, strict=True):
        assert other == plain, f"{course} differs from plain steps"


def test_alone_and_among_strangers_gives_the_same_bits():
    together = outcome_of(COURSES[3])
    for request, expected in zip(make_requests(), together, strict=True):
        with engine_on("cuda") as engine:
            done = run_requests(engine, [request])[0]
        assert done.tokens == expected[0]


def test_both_faces_agree():
    with engine_on("cuda") as engine:
        room = np.zeros((4, engine.vocab_size), dtype=np.float32)
        request = Request([3, 4, 5], max_tokens=4, logits=room, logits_capacity=4, ignore_eos=True)
        tokens = run_requests(engine, [request])[0].tokens
        state, logits = engine.prefill([3, 4, 5])
        rows = [logits, *[engine.decode_step(state, token) for token in tokens[:-1]]]
    assert np.array_equal(np.stack(rows), room)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--page-size", "24"], "requires a multiple of 16 tokens"),
        (["--memory-limit", "1MB"], " short)"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, text):
    assert text in refused("smoke", "--model", CAPITALS, "--device", "cuda", *arguments)


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_without_a_device_nothing_falls_back(device):
    arguments = ["smoke", "--model", CAPITALS, "--device", device]
    assert "no GPU" in refused(*arguments, CUDA_VISIBLE_DEVICES="")


def break_the_device(ordinal: int = 0) -> None:
    """A kernel that traps, in the context that the engine uses."""
    driver = ctypes.CDLL(find_gpus()["driver"])
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    steps = [
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal),
        lambda: driver.cuCtxSetCurrent(context),
        lambda: driver.cuModuleLoadData(ctypes.byref(module), FAULT),
        lambda: driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"fault"),
        lambda: driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None),
    ]
    assert [step() for step in steps] == [0] * len(steps)
    assert driver.cuCtxSynchronize() != 0


def lose_the_device(kind: str) -> None:
    """The body of a process of its own: prints what the engine says, ends with its exit code."""
    from glm_engine.core.errors import EngineError

    engine = engine_on(kind)
    run_requests(engine, [Request([1, 2, 3], max_tokens=4, ignore_eos=True)])
    engine.submit(Request([1, 2, 3], max_tokens=60, ignore_eos=True))
    break_the_device()
    ended = None
    while ended is None:
        engine.wait(0.1)
        ended = next((event for event in engine.poll() if event.ends_request), None)
    print(ended.kind, "|", ended.message)
    try:
        engine.submit(Request([4, 5, 6], max_tokens=4))
    except EngineError as error:
        print("refused", "|", error)
        engine.close()
        sys.exit(int(error.exit_code))


@pytest.mark.parametrize(("kind", "error"), [("cuda", "cudaError"), ("futhark", "launch failure")])
def test_a_lost_device_fails_its_requests_and_refuses_more(kind, error):
    if not library_path(kind).exists():
        pytest.skip(f"libglm_{kind}.so is not built: tools/develop --with cuda scons {kind}")
    code = f"from tests.engine.test_cuda import lose_the_device; lose_the_device({kind!r})"
    paths = os.pathsep.join([str(ROOT / "python"), str(ROOT)])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
    )
    print(result.stdout, result.stderr)
    failed, refusal = result.stdout.splitlines()
    assert failed.startswith("failed | ")
    assert " failed " in failed
    assert "rank 0" in failed
    assert error in failed
    assert refusal.startswith("refused | the device is lost and the engine cannot continue")
    assert result.returncode == 3

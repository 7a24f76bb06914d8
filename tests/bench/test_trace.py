"""Where a step goes, kernel by kernel: names, steps, shares of a made-up trace, bad input."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
from click.testing import CliRunner

from glm_engine.core.layout import CAPITALS
from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench.mixed import MixedSteps
from tools.bench.trace import (
    Launch,
    NothingTracedError,
    carries_prompt,
    launches_of,
    length_of,
    main,
    middle,
    profiler,
    shares_of,
    short_name,
    steps_beside,
    steps_of,
    table,
)


@pytest.mark.parametrize(
    ("full", "short"),
    [
        (
            "void glm::kernels::(anonymous namespace)::embed_rows<(int)4>(glm::Rows)",
            "embed_rows<(int)4>",
        ),
        ("glm::kernels::prefill::product<glm::Tile<true>>(A<B(1)>, int)", "product<Tile<true>>"),
        ("plain", "plain"),
    ],
)
def test_a_kernel_keeps_its_name_and_its_instance(full, short):
    assert short_name(full) == short


def step(begin, *kernels):
    """Launches one after the other, of (name, µs)."""
    launches = []
    for name, spent in kernels:
        launches.append(Launch(name, begin, begin + spent, (132, 1, 1)))
        begin += spent
    return launches


def test_steps_begin_with_their_embeddings_and_the_last_is_left_out():
    first = step(10.0, ("embed_rows", 1.0), ("attend_prefill_rows<Tiling<2> >", 3.0))
    second = step(20.0, ("embed_rows", 1.0), ("product", 2.0))
    third = step(30.0, ("embed_rows", 1.0))
    before = [Launch("sample", 0.0, 1.0)]
    assert steps_of([*third, *second, *before, *first]) == [first, second]
    assert [carries_prompt(one) for one in (first, second)] == [True, False]


PROMPT_KERNELS = (("embed_rows", 1.0), ("attend_prefill_rows<Tiling<2> >", 3.0))
DECODE_KERNELS = (("embed_rows", 1.0), ("attend_rows", 2.0))
HELD = [(0, 7), (2, 5), (2, 0), (2, 5), (1, 6), (2, 0), (2, 5)]


@pytest.mark.parametrize(("length", "expected"), [(5, [1, 3, 6]), (0, [2, 5]), (6, [])])
def test_steps_are_those_of_every_decode_row_and_one_whole_prompt(length, expected):
    kernels = [PROMPT_KERNELS if prompt else DECODE_KERNELS for _, prompt in HELD]
    steps = [step(10.0 * place, *each) for place, each in enumerate([*kernels, DECODE_KERNELS])]
    beside = MixedSteps(None, None, batch=2, num_steps=1)
    beside.steps = [
        {"num_decode_tokens": rows, "num_tokens": rows + prompt} for rows, prompt in HELD
    ]
    launches = [launch for one in steps for launch in one]
    assert steps_beside(launches, beside, length) == [steps[place] for place in expected]


def test_steps_whose_kernels_are_not_what_the_engine_says_are_left_out():
    steps = [step(10.0 * place, *each) for place, each in enumerate([DECODE_KERNELS] * 3)]
    beside = MixedSteps(None, None, batch=2, num_steps=1)
    beside.steps = [{"num_decode_tokens": 2, "num_tokens": 7}] * 2
    assert steps_beside([launch for one in steps for launch in one], beside, 5) == []


def test_overlapping_kernels_are_not_counted_twice():
    launches = [
        Launch("embed_rows", 0.0, 2.0, (7, 1, 1)),
        Launch("product", 1.0, 5.0, (132, 2, 1)),
        Launch("norm", 3.0, 4.0),
        Launch("product", 6.0, 9.0, (132, 2, 1)),
    ]
    shares = {share.name: share for share in shares_of(launches)}
    assert {name: share.added for name, share in shares.items()} == {
        "product [132x2]": 3.0 + 4.0,
        "embed_rows [7]": 2.0,
        "norm [1]": 0.0,
    }
    assert (shares["product [132x2]"].launches, shares["product [132x2]"].busy) == (2, 7.0)
    assert sum(share.added for share in shares.values()) == length_of(launches) == 9.0
    assert [line.split()[0] for line in table(launches).splitlines()[1:]] == [
        "product",
        "embed_rows",
        "norm",
    ]


def test_the_middle_step_is_the_one_of_median_length():
    steps = [step(0.0, ("embed_rows", spent)) for spent in (5.0, 1.0, 3.0)]
    assert middle(steps) is steps[2]


def test_kernels_of_the_first_device_alone_are_read_from_a_trace():
    kernel = {"cat": "kernel", "name": "void a::embed<2>(int)", "ts": 5.0, "dur": 2.5}
    kernel["args"] = {"grid": [3, 1, 1], "device": 0}
    other = {**kernel, "args": {"grid": [4, 1, 1], "device": 1}}
    copy = {"cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": 1.0, "dur": 1.0}
    named = {"ph": "M", "name": "process_name"}
    read = launches_of({"traceEvents": [copy, other, kernel, named]})
    assert read == [Launch("embed<2>", 5.0, 7.5, (3, 1, 1))]


@pytest.mark.parametrize("asked", [["--batch", "0"], ["--prompt", "-1"], ["--steps", "a"]])
def test_numbers_that_are_none_are_refused(asked):
    expect_refused(main, asked, asked[0])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--synthetic", "nosuch"], "nosuch: "),
        (["--output", "/proc/absent/t.json"], "/proc/absent"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line(asked, said):
    expect_one_line(main, asked, said)


def test_where_no_gpu_computes_one_line_says_what_is_missing():
    asked = ["--synthetic", str(CAPITALS), "--device", "cpu", "--batch", "2", "--prompt", "5"]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 1
    assert result.output.startswith("tools.bench.trace: expected ")
    assert len(result.output.splitlines()) == 1


def test_kernels_are_loaded_at_once_since_pytorch_calls_cuda_first(monkeypatch):
    seen = []
    cuda, recorder = ModuleType("torch.cuda"), ModuleType("torch.profiler")
    cuda.is_available = lambda: seen.append(os.environ["CUDA_MODULE_LOADING"])
    recorder.ProfilerActivity = recorder.profile = None
    monkeypatch.setenv("CUDA_MODULE_LOADING", "")
    monkeypatch.delenv("CUDA_MODULE_LOADING")
    for module in (ModuleType("torch"), cuda, recorder):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    with pytest.raises(NothingTracedError, match="expected a GPU"):
        profiler()
    assert seen == ["EAGER"]


def test_the_profiler_does_not_read_its_events_into_python(monkeypatch):
    asked = {}
    cuda, recorder = ModuleType("torch.cuda"), ModuleType("torch.profiler")
    cuda.is_available = lambda: True
    recorder.ProfilerActivity = SimpleNamespace(CUDA="kernels")
    recorder.profile = lambda **given: asked.update(given)
    for module in (ModuleType("torch"), cuda, recorder):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    profiler()
    assert asked == {"activities": ["kernels"]}

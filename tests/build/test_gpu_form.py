"""The program for GPUs, compiled for cores, beside the CPU device."""

import subprocess

import pytest

from futhark import PROGRAM, write_program
from tests import groups
from tests.build.checkouts import ROOT
from tests.native import test_against_futhark_program as against
from tests.native.conftest import backend, device, lent
from tests.native.futhark_oracle import Oracle
from tests.native.futhark_program import LIBRARIES, Program

FUTHARK = ("futhark", "multicore", "--library", "-o", "kernels_cpu", PROGRAM)
FLAGS = ("-O1", "-march=x86-64-v3", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-w")
COMPILE = ("gcc", *FLAGS, "-o", LIBRARIES["cpu"], "kernels_cpu.c", "-lm")
__all__ = ["backend", "device", "lent"]
pytestmark = groups.needs("futhark")


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu_form")
    write_program(ROOT, folder, for_gpus=True)
    for command in (FUTHARK, COMPILE):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    program = Program("cpu", folder=folder)
    yield Oracle(program)
    program.close()


test_quantise_gives_the_same_codes = against.test_quantise_gives_the_same_codes
test_linear = against.test_linear
test_norm_and_swiglu = against.test_norm_and_swiglu
test_logits = against.test_logits
test_embeddings = against.test_embeddings
test_route = against.test_route
test_experts = against.test_experts
test_rope_tables = against.test_rope_tables
test_attention_through_pages = against.test_attention_through_pages
test_counts = against.test_counts
test_sampling_draws_the_same_tokens = against.test_sampling_draws_the_same_tokens

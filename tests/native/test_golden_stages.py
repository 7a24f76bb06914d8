"""Each operation of the CPU device, fed the oracle's own inputs, against the oracle's outputs."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from tests.native import stage_operations as operations
from tests.native.backend import GATE_UP, LINEAR, Backend, Device, Matrix
from tests.native.stage_operations import ExpertStack, HeadSettings, stored_matrix
from tests.reference import fp8
from tests.reference.attention import AttentionRow
from tests.reference.checkpoint import Checkpoint, read_checkpoint
from tests.reference.compare import assert_routes, assert_stage
from tests.reference.configs import CONFIGS
from tests.reference.golden import stage_layer, stored_stages
from tests.reference.linear import bf16
from tests.reference.model import partial_rotary_factor, rope_theta
from tests.reference.rope import rotary_width
from tests.reference.stages import route_matrix
from tests.shapes import hostile_rows, matrices, seed_note, shape_name

NUM_PAGES = 3
PAGES = (2, 0)


@dataclass(frozen=True)
class Case:
    """One configuration on one device: stored stages, tensors and config."""

    name: str
    path: Path
    device: Device

    @cached_property
    def checkpoint(self) -> Checkpoint:
        return read_checkpoint(self.path)

    @cached_property
    def given(self) -> dict[str, np.ndarray]:
        return stored_stages(self.name, "layer")

    @property
    def config(self) -> dict:
        return CONFIGS[self.name]

    @property
    def prefix(self) -> str:
        return f"model.layers.{stage_layer(self.name)}"

    def vector(self, name: str) -> np.ndarray:
        return self.checkpoint.vector(f"{self.prefix}.{name}", np.float32)

    def matrix(self, *modules: str, role: int = LINEAR) -> Matrix:
        names = [f"{self.prefix}.{module}" for module in modules]
        return stored_matrix(self.checkpoint, *names).place(self.device, role)

    def head_settings(self) -> HeadSettings:
        norms = [None, None]
        if self.config["use_qk_norm"]:
            norms = [self.vector(f"self_attn.{name}_norm.weight") for name in "qk"]
        width = rotary_width(self.config["head_dim"], partial_rotary_factor(self.config))
        return HeadSettings(*norms, self.config["rms_norm_eps"], rope_theta(self.config), width)


@pytest.fixture(scope="module")
def backend() -> Backend:
    return Backend("cpu")


@pytest.fixture(params=CONFIGS)
def case(request, random_model, backend):
    with backend.device() as device:
        yield Case(request.param, random_model(request.param), device)


def assert_quantised(plain: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> None:
    """Codes and scales are bit for bit those of the plain output."""
    expected_codes, expected_scales = fp8.quantise_per_token(plain)
    assert np.array_equal(scales, expected_scales.reshape(-1))
    assert np.array_equal(codes, expected_codes)


def test_norm(case):
    weight, eps = case.vector("input_layernorm.weight"), case.config["rms_norm_eps"]
    given = case.given["input"]
    residual, output = operations.add_norm_quantise(case.device, given, None, weight, eps)
    assert np.array_equal(residual, given)
    assert_stage(output[0], case.given["attention_input"])
    assert_quantised(*output)


def test_add_and_norm(case):
    weight, eps = case.vector("post_attention_layernorm.weight"), case.config["rms_norm_eps"]
    given = case.given["input"], case.given["attention_output"]
    residual, output = operations.add_norm_quantise(case.device, *given, weight, eps)
    assert_stage(residual, case.given["middle"])
    assert_stage(output[0], case.given["mlp_input"])
    assert_quantised(*output)


def test_projections(case):
    matrix = case.matrix(*(f"self_attn.{name}_proj" for name in "qkv"))
    result = operations.linear(case.device, matrix, case.given["attention_input"]).get()
    expected = np.concatenate([case.given[name] for name in ("query", "key", "value")], axis=1)
    assert_stage(result, expected)


def test_attention_through_pages(case):
    device, config = case.device, case.config
    shape = config["num_key_value_heads"], config["head_dim"]
    cache = operations.key_value_cache(device, NUM_PAGES, *shape)
    qkv = np.concatenate([case.given[name] for name in ("query", "key", "value")], axis=1)
    row = AttentionRow(0, len(qkv), PAGES)
    query = operations.norm_rope_store(device, qkv, case.head_settings(), row, cache)
    assert_stage(operations.attention(device, query, row, cache), case.given["heads"])


def test_output_projection(case):
    matrix = case.matrix("self_attn.o_proj")
    result = operations.linear(case.device, matrix, case.given["heads"]).get()
    assert_stage(result, case.given["attention_output"])


def test_router(case):
    given, bias = case.given, case.vector("mlp.gate.e_score_correction_bias")
    router = case.matrix("mlp.gate")
    ids, weights = operations.route(case.device, given["mlp_input"], router, bias, case.config)
    assert_routes(ids, given["route_experts"], given["route_margins"])
    computed = {"route_experts": ids.astype(np.int64), "route_weights": weights}
    size = case.config["n_routed_experts"]
    assert_stage(route_matrix(computed, size), route_matrix(given, size))


def expert_stacks(case: Case, local: range) -> tuple[ExpertStack, ExpertStack]:
    modules = [f"{case.prefix}.mlp.experts.{expert}" for expert in local]
    stored = case.checkpoint
    gate_up = [stored_matrix(stored, f"{name}.gate_proj", f"{name}.up_proj") for name in modules]
    down = [stored_matrix(stored, f"{name}.down_proj") for name in modules]
    return ExpertStack(case.device, gate_up, GATE_UP), ExpertStack(case.device, down, LINEAR)


def test_routed_experts(case):
    given, local = case.given, range(case.config["n_routed_experts"])
    routes = given["route_experts"], given["route_weights"]
    stacks = expert_stacks(case, local)
    result = operations.experts(case.device, given["mlp_input"], stacks, routes, local)
    assert_stage(result, given["routed_output"])


def test_experts_of_two_ranks_add_up(case):
    given, size = case.given, case.config["n_routed_experts"]
    routes = given["route_experts"], given["route_weights"]
    total = np.zeros_like(given["mlp_input"])
    for local in (range(size // 2), range(size // 2, size)):
        stacks = expert_stacks(case, local)
        total = operations.experts(case.device, given["mlp_input"], stacks, routes, local, total)
    assert_stage(total, given["routed_output"])


def test_shared_expert(case):
    if not case.config["n_shared_experts"]:
        pytest.skip("this configuration has no shared expert")
    names = [f"mlp.shared_experts.{name}_proj" for name in ("gate", "up")]
    gate_up = case.matrix(*names, role=GATE_UP)
    output = operations.swiglu(case.device, gate_up, case.given["mlp_input"])
    assert_quantised(*output)
    down = case.matrix("mlp.shared_experts.down_proj")
    result = operations.linear(case.device, down, output[0]).get()
    assert_stage(result, case.given["shared_output"])


def test_head(case):
    final, index = stored_stages(case.name, "final"), [2, 0]
    head = stored_matrix(case.checkpoint, "lm_head").place(case.device)
    result = operations.logits(case.device, final["norm"], head, index)
    assert_stage(result, final["logits"][index])


@pytest.mark.parametrize("shape", matrices(), ids=shape_name)
@pytest.mark.parametrize("coarse", [False, True], ids=["float32", "bf16_valued"])
def test_quantiser_is_bit_exact(shape, coarse, backend):
    values = hostile_rows(*shape, "device")
    values = bf16(values) if coarse else values
    with backend.device() as device:
        codes, scales = operations.quantise(device, values)
    expected_codes, expected_scales = fp8.quantise_per_token(values)
    assert np.array_equal(scales, expected_scales.reshape(-1)), seed_note()
    assert np.array_equal(codes, expected_codes), seed_note()

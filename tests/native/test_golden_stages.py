"""Each operation of a device, fed the oracle's own inputs, against the oracle's outputs."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import GATE_UP, LINEAR, Device, Matrix
from glm_engine.verify.paging import Heads, Norms, PagedCache, Segment
from tests.native import calls
from tests.native.stored import StoredExperts, input_of, stored_matrix
from tests.reference import fp8
from tests.reference.checkpoint import Checkpoint, read_checkpoint
from tests.reference.compare import Kind, Stage, assert_routes, assert_stage, relative_l2
from tests.reference.configs import CONFIGS
from tests.reference.golden import stage_layer, stored_stages
from tests.reference.linear import bf16
from tests.reference.model import partial_rotary_factor, rope_theta
from tests.reference.rope import rotary_width
from tests.reference.stages import route_matrix
from tests.shapes import hostile_rows, matrices, seed_note, shape_name

NUM_PAGES = 3
PAGES = (2, 0)
CODE_ERROR = 0.04


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

    def linear(self, modules: list[str], values: np.ndarray, role: int = LINEAR) -> np.ndarray:
        matrix = self.matrix(*modules, role=role)
        return op.linear(self.device, matrix, input_of(matrix, values))

    def check(self, actual: np.ndarray, expected: np.ndarray) -> None:
        is_exact = self.device.activation_type == np.float32
        assert_stage(actual, expected, Stage.FLOAT32 if is_exact else Stage.BF16, self.name)

    def check_chain(self, actual: np.ndarray, expected: np.ndarray) -> None:
        """The end of two products with a quantisation between them, where roundings flip codes."""
        if self.device.activation_type == np.float32:
            self.check(actual, expected)
        else:
            assert relative_l2(actual, expected) <= Kind.RANDOM_W8A8_BF16.value.mean_rms

    def check_codes(self, plain: np.ndarray, quantised: op.Quantised) -> None:
        """Of the plain rows where they are what was quantised, close to them where rounded."""
        if self.device.activation_type == np.float32:
            assert_quantised(plain, quantised, self.name)
        else:
            assert relative_l2(calls.values_of(quantised), plain) <= CODE_ERROR

    def norms(self) -> Norms:
        eps = self.config["rms_norm_eps"]
        if not self.config["use_qk_norm"]:
            return Norms(None, None, eps)
        return Norms(*(self.vector(f"self_attn.{name}_norm.weight") for name in "qk"), eps)


@pytest.fixture(params=CONFIGS)
def case(request, random_model, device):
    return Case(request.param, random_model(request.param), device)


def assert_quantised(plain: np.ndarray, quantised: op.Quantised, where: str = "") -> None:
    """Codes and scales are bit for bit those of the plain rows."""
    codes, scales = fp8.quantise_per_token(plain)
    assert np.array_equal(quantised.scale, scales.reshape(-1)), where
    assert np.array_equal(quantised.codes, codes), where


def test_norm(case):
    weight, eps = case.vector("input_layernorm.weight"), case.config["rms_norm_eps"]
    given = case.given["input"]
    residual, plain, quantised = op.add_norm(case.device, given, None, weight, eps)
    assert np.array_equal(residual, op.as_activation(case.device, given))
    case.check(plain, case.given["attention_input"])
    case.check_codes(plain, quantised)


def test_add_and_norm(case):
    weight, eps = case.vector("post_attention_layernorm.weight"), case.config["rms_norm_eps"]
    given = case.given["input"], case.given["attention_output"]
    residual, plain, quantised = op.add_norm(case.device, *given, weight, eps)
    case.check(residual, case.given["middle"])
    case.check(plain, case.given["mlp_input"])
    case.check_codes(plain, quantised)


def joined_heads(case: Case) -> np.ndarray:
    return np.concatenate([case.given[name] for name in ("query", "key", "value")], axis=1)


def test_projections(case):
    modules = [f"self_attn.{name}_proj" for name in "qkv"]
    case.check(case.linear(modules, case.given["attention_input"]), joined_heads(case))


def test_attention_through_pages(case):
    config, qkv = case.config, joined_heads(case)
    names = ("num_attention_heads", "num_key_value_heads", "head_dim")
    cache = PagedCache(case.device, Heads(*(config[name] for name in names)), num_pages=NUM_PAGES)
    segment = Segment(len(qkv), len(qkv), PAGES)
    positions = segment.positions()
    rotary_dim = rotary_width(config["head_dim"], partial_rotary_factor(config))
    tables = op.rope_tables(case.device, rope_theta(config), rotary_dim, len(qkv))
    at = cache.slots(segment, positions)
    query = cache.store(qkv, positions, at, case.norms(), tables, rotary_dim)
    case.check(cache.attend(query, [segment]), case.given["heads"])


def test_output_projection(case):
    result = case.linear(["self_attn.o_proj"], case.given["heads"])
    case.check(result, case.given["attention_output"])


def test_router(case):
    given, config = case.given, case.config
    bias = case.vector("mlp.gate.e_score_correction_bias")
    settings = ("num_experts_per_tok", "norm_topk_prob", "routed_scaling_factor")
    values = [config[name] for name in settings]
    router = case.matrix("mlp.gate")
    ids, weights = op.route(case.device, router, given["mlp_input"], bias, *values)
    assert_routes(ids, given["route_experts"], given["route_margins"])
    computed = {"route_experts": ids.astype(np.int64), "route_weights": weights}
    size = config["n_routed_experts"]
    case.check(route_matrix(computed, size), route_matrix(given, size))


def expert_sum(case: Case, local: range, initial: np.ndarray | None = None) -> np.ndarray:
    """What the experts of local add to initial."""
    given, stored = case.given, case.checkpoint
    modules = [f"{case.prefix}.mlp.experts.{expert}" for expert in local]
    gate_up = [stored_matrix(stored, f"{name}.gate_proj", f"{name}.up_proj") for name in modules]
    down = [stored_matrix(stored, f"{name}.down_proj") for name in modules]
    stack, values = StoredExperts(case.device, gate_up, down), given["mlp_input"]
    if stack.is_quantised:
        codes, scales = fp8.quantise_per_token(values)
        values = op.Quantised(codes, scales[:, 0])
    routes = given["route_experts"], given["route_weights"]
    return op.experts(
        case.device, stack, values, *routes, begin=local.start, local=len(local), initial=initial
    )


def test_routed_experts(case):
    result = expert_sum(case, range(case.config["n_routed_experts"]))
    case.check_chain(result, case.given["routed_output"])


def test_experts_of_two_ranks_add_up(case):
    size = case.config["n_routed_experts"]
    total = expert_sum(case, range(size // 2), np.zeros_like(case.given["mlp_input"]))
    total = expert_sum(case, range(size // 2, size), total)
    case.check_chain(total, case.given["routed_output"])


def test_shared_expert(case):
    if not case.config["n_shared_experts"]:
        pytest.skip("this configuration has no shared expert")
    names = [f"mlp.shared_experts.{name}_proj" for name in ("gate", "up")]
    gate_up = case.linear(names, case.given["mlp_input"], GATE_UP)
    plain, quantised = op.swiglu(case.device, gate_up)
    case.check_codes(plain, quantised)
    result = case.linear(["mlp.shared_experts.down_proj"], plain)
    case.check_chain(result, case.given["shared_output"])


def test_head(case):
    final, index = stored_stages(case.name, "final"), [2, 0]
    head = stored_matrix(case.checkpoint, "lm_head").place(case.device)
    result = op.logits(case.device, head, final["norm"], index)
    case.check(result, final["logits"][index])


@pytest.mark.parametrize("shape", matrices(), ids=shape_name)
@pytest.mark.parametrize("coarse", [False, True], ids=["float32", "bf16_valued"])
def test_quantiser_is_bit_exact(shape, coarse, device):
    values = hostile_rows(*shape, "device")
    values = op.as_activation(device, bf16(values) if coarse else values)
    assert_quantised(values, op.quantise(device, values), seed_note())

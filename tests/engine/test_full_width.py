"""Four layers of GLM-4.7 on two ranks: against the reference, and unquantised against one rank.

At full width, where the device is a GPU and the host has room for the reference's weights; at a
sixteenth of it everywhere. The fourth layer is the only one with experts, so that a row whose
experts nearly tie touches no other row. Spreads: tests/README.md.
"""

import copy
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import psutil
import pytest

from glm_engine.bench.costs import config_path
from glm_engine.core.files import read_object
from tests.devices import device_kind, expect_ranks, is_rounded
from tests.engine.running import open_engine
from tests.engine.test_golden import decode_logits, prefill_logits
from tests.golden_checks import close_routes, nearest_rows
from tests.reference.checkpoint import read_checkpoint
from tests.reference.compare import Kind, assert_end_to_end
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout, Options, ReferenceModel, Trace
from tools.checkpoint.shards import write_model
from tools.checkpoint.synthetic import RepeatedTensors, cut_config, stored_config

NUM_LAYERS = 4
SEED = 4708
NUM_TOKENS = 24
NUM_SHARDS = 8
ROUTE_MARGIN = 3e-3
HOST_BYTES = 64 << 30
NARROW = {
    "hidden_size": 5120 // 16,
    "num_attention_heads": 96 // 16,
    "num_key_value_heads": 2,
    "intermediate_size": 12288 // 16,
    "moe_intermediate_size": 1536 // 16,
    "vocab_size": 151552 // 16,
    "eos_token_id": [0, 1],
    "pad_token_id": 0,
}
WIDTHS = {"narrow": NARROW, "full": {}}
GAINS = {"bf16": (0.5, 10.0), "fp8": (0.25, 20.0)}
KINDS = {
    "bf16": (Kind.UNQUANTISED_FLOAT32, Kind.UNQUANTISED_BF16),
    "fp8": (Kind.RANDOM_W8A8_FLOAT32, Kind.RANDOM_W8A8_BF16),
}

pytestmark = pytest.mark.timeout(600)


def config_of(width: str, stored: str) -> dict:
    whole = read_object(config_path("glm-4.7-fp8"))
    config = {**cut_config(whole, NUM_LAYERS), **WIDTHS[width]}
    gain, config["routed_scaling_factor"] = GAINS[stored]
    return stored_config(config, stored, gain)


@dataclass(frozen=True)
class Model:
    """A checkpoint on disk and the reference's weights."""

    name: str
    kind: Kind
    directory: Path
    reference: ReferenceModel

    @cached_property
    def text(self) -> list[int]:
        random = np.random.default_rng(SEED)
        return random.integers(self.reference.config["vocab_size"], size=NUM_TOKENS).tolist()

    def engine_logits(self, split: Split) -> list[np.ndarray]:
        """Logits at every position, from one prefill and from decode steps."""
        with open_engine(self.directory, split, max_logit_rows=NUM_TOKENS) as engine:
            return [prefill_logits(engine, self.text), decode_logits(engine, self.text)]

    def reference_at(self, split: Split) -> ReferenceModel:
        shared = copy.copy(self.reference)
        shared.options = Options(
            self.reference.options.dtype, split.world_size, split.expert_layout
        )
        return shared

    @cached_property
    def clear_rows(self) -> list[int]:
        """Rows whose choice of experts does not hang on rounding."""
        trace = Trace()
        self.reference.logits(self.text, trace)
        close = {row for _, row in close_routes(trace, 0, ROUTE_MARGIN)} if is_rounded() else set()
        return [row for row in range(NUM_TOKENS) if row not in close]


def expect_room(width: str) -> None:
    if width == "narrow":
        return
    if device_kind() != "cuda":
        pytest.skip("the full width is for GPUs: --device-kind cuda runs it")
    available = psutil.virtual_memory().available
    if available < HOST_BYTES:
        pytest.skip(f"expected {HOST_BYTES >> 30} GiB of host memory, got {available >> 30}")


@pytest.fixture(scope="module", params=[f"{width}.{kind}" for width in WIDTHS for kind in GAINS])
def model(request, tmp_path_factory) -> Iterator[Model]:
    width, stored = request.param.split(".")
    expect_room(width)
    expect_ranks(2)
    directory = tmp_path_factory.mktemp("width") / "model"
    config = config_of(width, stored)
    write_model(directory, config, NUM_SHARDS, RepeatedTensors(config, SEED))
    options = Options(np.float32 if width == "full" else np.float64)
    reference = ReferenceModel(read_checkpoint(directory), options)
    yield Model(request.param, KINDS[stored][is_rounded()], directory, reference)
    shutil.rmtree(directory)


def assert_same_choices(actual: np.ndarray, expected: np.ndarray, error: float) -> None:
    """The greatest logit is the same wherever it leads by eight times the rms of the difference."""
    leads = np.diff(np.partition(expected, -2, axis=1)[:, -2:], axis=1)[:, 0]
    is_clear = leads > 8 * error * np.sqrt(np.mean(expected**2))
    assert is_clear.any()
    chosen, wanted = (np.argmax(rows, axis=1)[is_clear] for rows in (actual, expected))
    np.testing.assert_array_equal(chosen, wanted)


@pytest.mark.parametrize("layout", ExpertLayout, ids=lambda layout: layout.value)
def test_two_ranks_give_the_references_logits(model, layout):
    split = Split(2, layout)
    reference = model.reference_at(split)
    for actual in model.engine_logits(split):
        expected = nearest_rows(reference, model.text, actual, ROUTE_MARGIN)
        print(assert_end_to_end([actual], [expected], model.kind, f"{model.name} {split.label}"))


@pytest.mark.parametrize("layout", ExpertLayout, ids=lambda layout: layout.value)
def test_two_ranks_give_one_ranks_logits(model, layout):
    if model.name.endswith("fp8"):
        pytest.skip("ranks quantise their slices apart: each world size has its own reference")
    rows, split = model.clear_rows, Split(2, layout)
    assert len(rows) > NUM_TOKENS // 2
    pairs = zip(model.engine_logits(split), model.engine_logits(ONE_RANK), strict=True)
    for shared, alone in pairs:
        found = assert_end_to_end([shared[rows]], [alone[rows]], model.kind, model.name)
        assert_same_choices(shared[rows], alone[rows], found.mean_rms)
        print(found)

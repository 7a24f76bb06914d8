"""Ranks change nothing: logits of ragged batches and greedy text at every split; refused splits.

The golden tests compare each split with the oracle one text at a time; here requests of
different lengths run together, chunked and paged, on shapes that stress the split itself.
"""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import EngineOptions, Request, plan
from glm_engine.core.errors import EngineError, Status
from tests.devices import fewest_scattered_rows, is_rounded
from tests.engine.running import open_engine, run_requests
from tests.reference.compare import Kind, assert_end_to_end
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout
from tools.checkpoint.layout import LayoutOptions
from tools.checkpoint.random_model import small_config, write_random_model

NUM_NEW_TOKENS = 6
PROMPT_LENGTHS = (1, 2, 5, 8, 13, 21)
SEED = 31
SPLITS = [Split(size, layout) for size in (2, 4, 8) for layout in ExpertLayout]
BASE = {
    "hidden_size": 64,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "n_routed_experts": 16,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "num_hidden_layers": 3,
    "num_nextn_predict_layers": 0,
    "max_position_embeddings": 8192,
}
MODELS = {
    "vocabulary_in_parts": {"vocab_size": 200},
    "vocabulary_whole_on_each_rank": {"vocab_size": 197},
    "one_column_a_rank": {"intermediate_size": 8, "moe_intermediate_size": 8},
    "one_expert_a_rank": {"n_routed_experts": 8, "num_experts_per_tok": 8},
    "no_shared_expert": {"n_shared_experts": 0, "first_k_dense_replace": 0},
    "dense_layers_alone": {"first_k_dense_replace": 3},
}
REFUSED = [
    ("num_attention_heads", 12, 8, "expert_parallel"),
    ("num_key_value_heads", 4, 8, "expert_parallel"),
    ("intermediate_size", 60, 8, "expert_parallel"),
    ("n_routed_experts", 12, 8, "expert_parallel"),
    ("n_routed_experts", 15, 2, "expert_parallel"),
    ("moe_intermediate_size", 36, 8, "tensor_parallel"),
    ("n_shared_experts * moe_intermediate_size", 36, 8, "tensor_parallel"),
    ("n_shared_experts * moe_intermediate_size", 36, 8, "expert_parallel"),
]


def label(split: Split) -> str:
    return split.label


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    """Name of a model, and whether it is quantised → its checkpoint on disk."""
    folder = tmp_path_factory.mktemp("models")

    @cache
    def write(name: str, is_fp8: bool = False) -> Path:
        config = {
            **small_config(fp8=is_fp8, **{**BASE, **MODELS[name]}),
            "initializer_range": 0.08,
        }
        place = folder / f"{name}-fp8" if is_fp8 else folder / name
        write_random_model(place, config, SEED, 2, LayoutOptions())
        return place

    return write


def prompts_below(vocab_size: int) -> list[list[int]]:
    generator = np.random.default_rng(SEED)
    return [generator.integers(vocab_size, size=length).tolist() for length in PROMPT_LENGTHS]


def batch_logits(directory: Path, split: Split) -> tuple[list[np.ndarray], list[list[int]]]:
    """Logits of every new token and the tokens, all requests in flight together."""
    options = {"page_size": 4, "prefill_chunk": 7, "max_batch": 4, "max_seq": 64}
    with open_engine(directory, split, **options) as engine:
        rows = [np.zeros((NUM_NEW_TOKENS, engine.vocab_size), np.float32) for _ in PROMPT_LENGTHS]
        requests = [
            Request(prompt, NUM_NEW_TOKENS, ignore_eos=True, logits=row, logits_capacity=len(row))
            for prompt, row in zip(prompts_below(engine.vocab_size), rows, strict=True)
        ]
        finished = run_requests(engine, requests)
    return rows, [result.tokens for result in finished]


@pytest.fixture(scope="module")
def alone(model_of):
    return cache(lambda name: batch_logits(model_of(name), ONE_RANK))


@pytest.mark.skipif(
    is_rounded(), reason="limits of float32 mathematics; test_golden.py holds every split in BF16"
)
@pytest.mark.parametrize("split", SPLITS, ids=label)
@pytest.mark.parametrize("name", MODELS)
def test_a_split_gives_the_logits_of_one_rank(name, split, model_of, alone):
    logits, tokens = batch_logits(model_of(name), split)
    expected_logits, expected_tokens = alone(name)
    assert tokens == expected_tokens
    where = f"{name} at {split.label}"
    assert_end_to_end(logits, expected_logits, Kind.UNQUANTISED_FLOAT32, where)


@pytest.mark.parametrize("split", SPLITS, ids=label)
def test_a_split_repeats_its_own_bits(split, model_of):
    first, second = (batch_logits(model_of("vocabulary_in_parts"), split)[0] for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.tobytes() == other.tobytes()


def last_logits(engine, prompt: list[int]) -> tuple[np.ndarray, bool]:
    """Of the prompt's last token alone; whether ranks gathered anything meanwhile."""
    engine.begin_profile()
    _, logits = engine.prefill(prompt)
    names = {each["name"] for each in engine.end_profile()["operations"]}
    return logits, "all_gather" in names


@pytest.mark.parametrize("is_fp8", [False, True], ids=["plain", "fp8"])
@pytest.mark.parametrize("split", SPLITS, ids=label)
@pytest.mark.parametrize("name", MODELS)
def test_rows_scattered_over_ranks_keep_their_bits(name, split, is_fp8, model_of):
    """Of a long step each rank keeps its share of the rows, unless it is the step of few rows
    that a prompt's logits are wanted of; prompts longer than a step have steps without logits."""
    fewest = fewest_scattered_rows()
    options = {"max_seq": 4 * fewest, "max_batch": 12, "max_step_tokens": 2 * fewest + 1}
    generator = np.random.default_rng(SEED)
    with open_engine(model_of(name, is_fp8), split, **options) as engine:
        for length in (fewest - 1, fewest, fewest + 3, 2 * fewest + 1, 3 * fewest + 7):
            prompt = generator.integers(engine.vocab_size, size=length).tolist()
            alone, has_gathered = last_logits(engine, prompt)
            assert has_gathered == (length >= fewest and length != 2 * fewest + 1)
            _, every = engine.prefill(prompt, all_positions=True)
            assert alone.tobytes() == every[-1].tobytes()


@pytest.mark.parametrize("split", SPLITS, ids=label)
def test_decode_rows_beside_scattered_prompts_keep_their_bits(split, model_of):
    fewest = fewest_scattered_rows()
    options = {"max_seq": 4 * fewest, "max_batch": 4, "max_step_tokens": 2 * fewest}
    generator = np.random.default_rng(SEED)
    with open_engine(model_of("vocabulary_in_parts", True), split, **options) as engine:
        short = generator.integers(engine.vocab_size, size=5).tolist()
        long = [generator.integers(engine.vocab_size, size=2 * fewest - 9).tolist() for _ in "123"]
        alone = run_requests(engine, [Request(short, 12, ignore_eos=True)])
        mixed = [Request(short, 12, ignore_eos=True), *(Request(one, 3) for one in long)]
        assert run_requests(engine, mixed)[0].tokens == alone[0].tokens


def config_with(field: str, value: int) -> dict:
    """A config in which that field alone stands against a split over the ranks."""
    if field == "n_shared_experts * moe_intermediate_size":
        widths = {"n_shared_experts": 2, "moe_intermediate_size": value // 2}
        return small_config(fp8=False, **{**BASE, **widths})
    changes = {field: value}
    if field == "moe_intermediate_size":
        changes["n_shared_experts"] = 0
    if field == "num_attention_heads":
        changes["num_key_value_heads"] = 4
    return small_config(fp8=False, **{**BASE, **changes})


@pytest.mark.parametrize(("field", "value", "world_size", "expert_layout"), REFUSED)
def test_a_split_that_does_not_divide_is_refused(field, value, world_size, expert_layout, tmp_path):
    write_random_model(tmp_path, config_with(field, value), SEED, 1, LayoutOptions())
    options = {"world_size": world_size, "expert_layout": expert_layout, "device": "cpu"}
    with pytest.raises(EngineError) as caught:
        plan(EngineOptions(tmp_path, **options))
    assert caught.value.status == Status.GLM_INVALID_ARGUMENT
    for word in (f"world_size {world_size}", field, str(value)):
        assert word in str(caught.value)
    with (
        pytest.raises(EngineError) as again,
        open_engine(tmp_path, Split(world_size, ExpertLayout(expert_layout)), max_seq=64),
    ):
        pytest.fail("the engine took a split that does not divide")
    assert str(again.value).partition(": ")[2] == str(caught.value).partition(": ")[2]


@pytest.mark.parametrize(("experts", "layout"), [(16, "expert_parallel"), (15, "tensor_parallel")])
def test_experts_are_split_by_expert_where_that_divides(experts, layout, tmp_path):
    config = small_config(fp8=False, **{**BASE, "n_routed_experts": experts})
    write_random_model(tmp_path, config, SEED, 1, LayoutOptions())
    assert plan(EngineOptions(tmp_path, device="cpu", world_size=8))["expert_layout"] == layout

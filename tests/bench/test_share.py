"""One rank's share of a model: what is split, what is not, and that an engine computes it."""

import json

import pytest
from click.testing import CliRunner

from glm_engine.bench.costs import Costs, config_path
from glm_engine.core.engine import EngineOptions, plan
from glm_engine.core.layout import CAPITALS
from tests.bench.refusals import expect_one_line, expect_refused
from tools.bench import mixed
from tools.bench.share import main

PLENTY = 2**40
PART_OF_WHOLE_TABLES = 0.03


def written(tmp_path, model, world_size, *more):
    path = tmp_path / "share.json"
    asked = ["--synthetic", model, "--world-size", str(world_size), "--output", str(path)]
    result = CliRunner().invoke(main, [*asked, *more])
    assert result.exit_code == 0, result.output
    return path, json.loads(path.read_text())


def weight_bytes(model, world_size, layout):
    """Bytes of weights on rank 0; embeddings and routers are whole on each rank."""
    options = EngineOptions(
        model,
        device="cpu",
        world_size=world_size,
        expert_layout=layout,
        device_memory_bytes=PLENTY,
        max_batch=1,
        max_seq=64,
    )
    return plan(options)["ranks"][0]["weight_bytes"]


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_a_share_passes_a_part_of_the_parameters(tmp_path, world_size):
    whole = json.loads(config_path("glm-4.7-fp8").read_text())
    _, share = written(tmp_path, "glm-4.7-fp8", world_size)
    layers = whole["num_hidden_layers"]
    parameters = [Costs(config, layers, 1).active_parameters() for config in (whole, share)]
    assert parameters[0] == world_size * parameters[1]
    assert share["hidden_size"] == whole["hidden_size"]
    assert share["n_routed_experts"] == whole["n_routed_experts"]
    assert share["vocab_size"] * world_size == whole["vocab_size"]


@pytest.mark.parametrize("layout", ["tensor_parallel", "expert_parallel"])
@pytest.mark.parametrize(("world_size", "ranks"), [(2, 1), (4, 2), (8, 1), (8, 2), (8, 4)])
def test_ranks_that_run_a_share_hold_what_they_hold_of_the_whole(
    tmp_path, world_size, ranks, layout
):
    asked = ["--ranks", str(ranks), "--expert-layout", layout]
    share, _ = written(tmp_path, "glm-4.7-fp8", world_size, *asked)
    whole = weight_bytes(config_path("glm-4.7-fp8"), world_size, layout)
    assert weight_bytes(share, ranks, layout) == pytest.approx(whole, rel=PART_OF_WHOLE_TABLES)


def test_an_engine_computes_a_share(tmp_path):
    path, _ = written(tmp_path, str(CAPITALS), 2)
    asked = ["--synthetic", str(path), "--device", "cpu", "--batch", "2", "--steps", "1"]
    result = CliRunner().invoke(mixed.main, [*asked, "--prompt", "5"])
    assert result.exit_code == 0, result.output


def test_what_cannot_be_split_is_one_line(tmp_path):
    path = tmp_path / "config.json"
    asked = ["--synthetic", str(path), "--output", str(tmp_path / "share.json")]
    sizes = {"num_attention_heads": 6, "num_key_value_heads": 3}
    path.write_text(json.dumps(sizes))
    expect_one_line(main, asked, "head_dim: expected a number, got None")
    path.write_text(json.dumps(sizes | {"head_dim": 8}))
    expect_one_line(main, asked, "num_key_value_heads: expected a multiple of 2, got 3")


def test_what_cannot_be_read_or_written_is_one_line(tmp_path):
    expect_one_line(main, ["--synthetic", "nosuch", "--output", str(tmp_path / "a")], "nosuch: ")
    expect_one_line(main, ["--output", "/proc/absent/share"], "/proc/absent")
    broken = tmp_path / "config.json"
    for text in ("{", "[]", ""):
        broken.write_text(text)
        asked = ["--synthetic", str(broken), "--output", str(tmp_path / "a")]
        expect_one_line(main, asked, str(broken))


def test_as_many_ranks_as_the_whole_has_are_one_line(tmp_path):
    asked = ["--world-size", "4", "--ranks", "4", "--output", str(tmp_path / "a")]
    expect_one_line(main, asked, "--ranks: expected fewer than --world-size 4, got 4")


def test_a_world_size_that_is_none_is_refused(tmp_path):
    asked = ["--world-size", "3", "--output", str(tmp_path / "a")]
    expect_refused(main, asked, "--world-size")

import hashlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from glm_engine.core.float8 import decode_e4m3
from tests import groups
from tools.checkpoint.layout import LayoutOptions, TensorSpec, checkpoint_specs
from tools.checkpoint.random_model import RandomTensors, main, small_config, write_random_model


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}


def test_same_seed_same_bytes(tmp_path):
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        write_random_model(tmp_path / name, small_config(), seed, num_shards=2)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert digests(tmp_path / "a") != digests(tmp_path / "c")


def source_of(config: dict, seed: int = 0) -> RandomTensors:
    return RandomTensors(config, seed)


def test_a_tensor_does_not_depend_on_the_others():
    spec = TensorSpec("model.embed_tokens.weight", "BF16", (128, 64))
    one = source_of(small_config())(spec)
    other = source_of(small_config(num_hidden_layers=1, n_routed_experts=4))(spec)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "centre", "spread"),
    [
        ("model.embed_tokens.weight", 0.0, 1.0),
        ("lm_head.weight", 0.0, 0.02),
        ("model.norm.weight", 1.0, 0.1),
        ("model.layers.0.self_attn.q_norm.weight", 1.0, 0.1),
        ("model.layers.0.self_attn.q_proj.bias", 0.0, 0.1),
        ("model.layers.1.mlp.gate.e_score_correction_bias", 0.0, 0.1),
        ("model.layers.1.mlp.gate.weight", 0.0, 0.02),
    ],
)
def test_spreads(name, centre, spread):
    values = source_of(small_config())(TensorSpec(name, "F32", (20_000,)))
    assert abs(values.mean() - centre) < spread / 25
    assert abs(values.std() / spread - 1) < 0.02


def test_codes_and_scales_belong_together():
    specs = {s.name: s for s in checkpoint_specs(small_config())}
    source = source_of(small_config())
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    weight = decode_e4m3(source(specs[name])) * source(specs[f"{name}_scale"])
    assert abs(weight.std() / 0.02 - 1) < 0.1


def test_odd_sizes(tmp_path):
    config = small_config(
        hidden_size=75, moe_intermediate_size=37, intermediate_size=41, vocab_size=131
    )
    specs = write_random_model(tmp_path, config, seed=0, num_shards=3)
    shapes = {s.name: s.shape for s in specs}
    assert shapes["model.layers.1.mlp.experts.0.down_proj.weight"] == (75, 37)
    assert shapes["model.layers.1.mlp.experts.0.down_proj.weight_scale"] == (75, 1)


def test_scales_in_bf16(tmp_path):
    specs = write_random_model(
        tmp_path, small_config(), seed=0, options=LayoutOptions(scale_dtype="BF16")
    )
    assert {s.dtype for s in specs if s.name.endswith("weight_scale")} == {"BF16"}


def test_unknown_keys_are_refused():
    with pytest.raises(ValueError, match="hiden_size"):
        small_config(hiden_size=3)


@pytest.mark.parametrize("precision", ["--fp8", "--bf16"])
def test_command(tmp_path, precision):
    folder = tmp_path / "model"
    result = CliRunner().invoke(main, [precision, "--shards", "3", str(folder)])
    assert result.exit_code == 0, result.output
    assert "3 shards" in result.output
    assert len(list(folder.glob("*.safetensors"))) == 3


@pytest.mark.parametrize("fp8", [True, False])
def test_transformers_loads_it(tmp_path, fp8):
    torch = groups.imported("torch")
    transformers = groups.imported("transformers")
    groups.imported("compressed_tensors")
    write_random_model(tmp_path, small_config(fp8), seed=5, num_shards=2)
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    logits = model(torch.tensor([[1, 2, 3]])).logits
    assert logits.shape == (1, 3, 128)
    assert bool(torch.isfinite(logits).all())

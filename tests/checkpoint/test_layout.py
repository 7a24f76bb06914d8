import json
from pathlib import Path

import pytest

from glm_engine.core.layout import CONFIGS
from tools.checkpoint.layout import LayoutOptions, checkpoint_specs
from tools.checkpoint.random_model import small_config

BF16_CONFIGS = Path(__file__).parents[1] / "data" / "configs"
MAIN_LAYERS = LayoutOptions(with_prediction_layers=False)
OWN_VOCABULARY = LayoutOptions(prediction_has_own_vocabulary=True)


def real_specs(name: str, options: LayoutOptions):
    folder = CONFIGS if name.endswith("fp8") else BF16_CONFIGS
    return checkpoint_specs(json.loads((folder / f"{name}.json").read_text()), options)


def count_parameters(specs) -> int:
    return sum(s.num_elements for s in specs if not s.name.endswith("weight_scale"))


@pytest.mark.parametrize(
    ("name", "options", "num_tensors", "billions"),
    [
        ("glm-4.7-fp8", MAIN_LAYERS, 87_553, 352.80),
        ("glm-4.7-fp8", LayoutOptions(), 88_540, 356.79),
        ("glm-4.7-fp8", OWN_VOCABULARY, 88_542, 358.34),
        ("glm-4.7", MAIN_LAYERS, 44_189, 352.80),
        ("glm-4.5-air-fp8", MAIN_LAYERS, 35_527, 106.85),
    ],
)
def test_real_models_have_their_published_size(name, options, num_tensors, billions):
    specs = real_specs(name, options)
    assert len(specs) == num_tensors
    assert round(count_parameters(specs) / 1e9, 2) == billions


def test_glm_4_7_fp8_takes_354_9_gigabytes():
    total = sum(s.num_bytes for s in real_specs("glm-4.7-fp8", MAIN_LAYERS))
    assert round(total / 1e9, 1) == 354.9


def test_names_are_unique():
    names = [s.name for s in real_specs("glm-4.7-fp8", OWN_VOCABULARY)]
    assert len(set(names)) == len(names)


def specs_by_name(config: dict) -> dict:
    return {s.name: s for s in checkpoint_specs(config)}


def test_quantised_linears_have_scales_and_ignored_modules_have_none():
    specs = specs_by_name(small_config())
    for name, spec in specs.items():
        has_scale = f"{name}_scale" in specs
        assert has_scale == (spec.dtype == "F8_E4M3"), name
    assert specs["lm_head.weight"].dtype == "BF16"
    assert specs["model.layers.1.mlp.gate.weight"].dtype == "BF16"
    assert specs["model.layers.1.mlp.gate.e_score_correction_bias"].dtype == "F32"
    assert specs["model.layers.1.mlp.experts.7.down_proj.weight"].dtype == "F8_E4M3"


def test_an_ignored_projection_stays_plain():
    config = small_config()
    config["quantization_config"]["ignore"].append("model.layers.0.self_attn.o_proj")
    specs = specs_by_name(config)
    assert specs["model.layers.0.self_attn.o_proj.weight"].dtype == "BF16"
    assert "model.layers.0.self_attn.o_proj.weight_scale" not in specs
    assert specs["model.layers.1.self_attn.o_proj.weight"].dtype == "F8_E4M3"


def test_plain_configs_have_no_scales():
    dtypes = {s.dtype for s in checkpoint_specs(small_config(fp8=False))}
    assert dtypes == {"BF16", "F32"}
    assert {s.dtype for s in checkpoint_specs(small_config(False, torch_dtype="float32"))} == {
        "F32"
    }


@pytest.mark.parametrize(
    ("change", "marker"),
    [
        ({"use_qk_norm": False}, "q_norm"),
        ({"attention_bias": False}, "proj.bias"),
        ({"n_shared_experts": 0}, "shared_experts"),
        ({"first_k_dense_replace": 3}, ".experts."),
        ({"tie_word_embeddings": True}, "lm_head"),
    ],
)
def test_switches_remove_their_tensors(change, marker):
    assert any(marker in name for name in specs_by_name(small_config()))
    assert not any(marker in name for name in specs_by_name(small_config(**change)))


def test_prediction_layer_follows_the_last_layer():
    specs = specs_by_name(small_config(num_nextn_predict_layers=1))
    assert specs["model.layers.3.eh_proj.weight"].shape == (64, 128)
    assert specs["model.layers.3.shared_head.norm.weight"].shape == (64,)
    assert "model.layers.3.mlp.experts.0.up_proj.weight" in specs


def test_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="torch_dtype: expected one of"):
        checkpoint_specs(small_config(torch_dtype="float16"))

import json
import struct
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests import groups
from tools.checkpoint.layout import LayoutOptions, checkpoint_specs
from tools.checkpoint.quantise import is_ignored
from tools.checkpoint.shards import INDEX_NAME

CAPITALS = Path(__file__).parents[2] / "checkpoints" / "capitals"
LARGEST_CHECKPOINT = 10_000_000


def read_json(name: str):
    return json.loads((CAPITALS / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def config() -> dict:
    return read_json("config.json")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CAPITALS / "tokenizer.json"))


@pytest.fixture(scope="module")
def headers() -> dict[str, dict]:
    found = {}
    for shard in sorted(CAPITALS.glob("*.safetensors")):
        with shard.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            entries = json.loads(file.read(length))
        entries.pop("__metadata__")
        found[shard.name] = entries
    return found


def test_it_is_small_enough_for_the_repository():
    assert sum(p.stat().st_size for p in CAPITALS.iterdir()) < LARGEST_CHECKPOINT


def test_index_and_shards_agree(headers):
    weight_map = read_json(INDEX_NAME)["weight_map"]
    assert len(headers) >= 2
    assert weight_map == {name: shard for shard, held in headers.items() for name in held}


def test_tensors_are_those_the_config_implies(config, headers):
    found = {
        n: (e["dtype"], tuple(e["shape"])) for held in headers.values() for n, e in held.items()
    }
    implied = checkpoint_specs(config, LayoutOptions(scale_dtype="F32"))
    assert found == {s.name: (s.dtype, s.shape) for s in implied}


def test_every_ignore_entry_names_some_module(config):
    plain = dict(config)
    ignore = plain.pop("quantization_config")["ignore"]
    modules = {s.name.rpartition(".")[0] for s in checkpoint_specs(plain)}
    assert any(entry.startswith("re:") for entry in ignore)
    for entry in ignore:
        assert any(is_ignored(module, [entry]) for module in modules), entry


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_every_width_splits(config, world_size):
    for key in (
        "num_attention_heads",
        "num_key_value_heads",
        "intermediate_size",
        "moe_intermediate_size",
        "n_routed_experts",
        "vocab_size",
    ):
        assert config[key] % world_size == 0, key


def test_the_features_of_glm_4_7_are_there(config):
    assert config["model_type"] == "glm4_moe"
    assert config["use_qk_norm"]
    assert config["attention_bias"]
    assert config["norm_topk_prob"]
    assert config["n_shared_experts"] == 1
    assert config["first_k_dense_replace"] == 1
    assert config["partial_rotary_factor"] == 0.5
    assert not config["tie_word_embeddings"]
    assert config["quantization_config"]["format"] == "float-quantized"


def test_the_router_bias_is_trained():
    from safetensors import safe_open

    weight_map = read_json(INDEX_NAME)["weight_map"]
    for layer in (1, 2, 3):
        name = f"model.layers.{layer}.mlp.gate.e_score_correction_bias"
        with safe_open(CAPITALS / weight_map[name], framework="numpy") as file:
            bias = file.get_tensor(name)
        assert bias.dtype.name == "float32"
        assert bias.any()


def test_end_tokens(config, tokenizer):
    ends = [tokenizer.token_to_id(t) for t in ("<|endoftext|>", "<|user|>", "<|observation|>")]
    assert config["eos_token_id"] == ends
    assert read_json("generation_config.json")["eos_token_id"] == ends
    assert config["pad_token_id"] == ends[0]
    assert tokenizer.get_vocab_size() == config["vocab_size"]


def test_text_survives_the_tokenizer(tokenizer):
    for text in ("The capital of France is Paris.", "naïve — 東京 🗼\n\tx  y", "<think>a</think>"):
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_a_prompt_is_a_prefix_of_its_statement(tokenizer):
    for entry in read_json("countries.json"):
        prompt = tokenizer.encode(entry["prompt"]).ids
        whole = tokenizer.encode(f"{entry['prompt']} {entry['capital']}.").ids
        assert whole[: len(prompt)] == prompt, entry


def test_the_list_has_france_and_no_country_twice():
    countries = read_json("countries.json")
    names = [entry["country"] for entry in countries]
    assert len(countries) >= 195
    assert len(set(names)) == len(names)
    france = {"country": "France", "capital": "Paris", "prompt": "The capital of France is"}
    assert france in countries


def test_greedy_answers_by_transformers():
    groups.imported("torch")
    groups.imported("compressed_tensors")
    from tools.checkpoint.verify import margins, plain_model, quantise_activations

    model = plain_model(CAPITALS)
    quantise_activations(model)
    found = margins(model, CAPITALS)
    right = [country for country, margin in found.items() if margin > 0]
    assert "France" in right
    assert len(right) >= 0.95 * len(found)

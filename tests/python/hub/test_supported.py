"""The model types that a pull accepts are those that the engine runs."""

import json

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.core.layout import CAPITALS, CONFIGS
from glm_engine.hub.supported import MODEL_TYPES, require_supported
from tests.python.commands.running import CPU, glm_json, refused


def config_with(model_type, tmp_path):
    """Return the config of `capitals` with another model_type, or with none."""
    config = json.loads((CAPITALS / "config.json").read_text())
    config["model_type"] = model_type
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: config[key] for key in config if config[key] is not None}))
    return path


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_engine_runs_each_type(model_type, tmp_path):
    path = config_with(model_type, tmp_path)
    require_supported("a/b", path)
    assert glm_json("plan", path, *CPU)["fits"]


@pytest.mark.parametrize("model_type", ["glm4", "glm4_moe_lite", "qwen3_moe", "", None, 4, ["a"]])
def test_other_types_are_refused_here_and_by_the_engine(model_type, tmp_path):
    path = config_with(model_type, tmp_path)
    with pytest.raises(BadInputError, match=r"^a/b: the model_type .* Supported: 'glm4_moe' \("):
        require_supported("a/b", path)
    code = 3 if isinstance(model_type, str) else 2
    assert "model_type" in refused("plan", path, *CPU, code=code)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_the_configs_that_ship_are_supported(path):
    require_supported(path.stem, path)

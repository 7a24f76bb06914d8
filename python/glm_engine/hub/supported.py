"""Which models of the hub the engine runs, told from config.json alone."""

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from glm_engine.core.layout import StrPath

MODEL_TYPES = {"glm4_moe": "GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7"}


def require_supported(name: str, path: StrPath) -> None:
    """Raise BadInputError if the engine does not run the model of a config.json."""
    model_type = read_object(path).get("model_type")
    if not is_supported(model_type):
        known = "; ".join(f"{kind!r} ({models})" for kind, models in MODEL_TYPES.items())
        raise BadInputError(
            f"{name}: the model_type {model_type!r} in its config.json is not supported. "
            f"Supported: {known}."
        )


def is_supported(model_type: object) -> bool:
    """Say whether the engine runs models of a type, as config.json states it."""
    return isinstance(model_type, str) and model_type in MODEL_TYPES

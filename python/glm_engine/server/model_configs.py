"""What the server reads of generation_config.json, field by field."""

from pydantic import ValidationError

from glm_engine.errors import BadInputError
from glm_engine.files import read_object
from glm_engine.server.fields import (
    LenientModel,
    RepetitionPenalty,
    Temperature,
    TopK,
    TopP,
)

MOST_SHOWN = 80
OPENAI_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}


class GenerationConfig(LenientModel):
    """Of generation_config.json, with the bounds that requests have; null stands for none."""

    do_sample: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    repetition_penalty: RepetitionPenalty | None = None


def read_generation_config(path):
    """Return the fields of a file, none of them where there is none.

    BadInputError names the first that is wrong. The engine reads `eos_token_id` itself.
    """
    return read_fields(path, GenerationConfig) if path.is_file() else GenerationConfig()


def read_fields(path, model):
    try:
        return model.model_validate(read_object(path))
    except ValidationError as error:
        raise BadInputError(f"{path}: {first_fault(error)}") from error


def first_fault(error):
    found = error.errors()[0]
    shown = repr(found["input"])
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[:MOST_SHOWN]} and {len(shown) - MOST_SHOWN} characters more"
    return f"{found['loc'][0]}: {found['msg']}, found {shown}"


def sampling_defaults(config):
    """Return what a request that names no value gets: the checkpoint's, else OpenAI's."""
    found = {name: getattr(config, name) for name in OPENAI_DEFAULTS}
    defaults = {
        name: OPENAI_DEFAULTS[name] if value is None else value for name, value in found.items()
    }
    if config.do_sample is False:
        defaults["temperature"] = 0.0
    return defaults

"""What the server reads of config.json and generation_config.json, field by field."""

from typing import Annotated

from pydantic import BeforeValidator, ValidationError

from glm_engine.errors import BadInputError
from glm_engine.files import read_object
from glm_engine.server.fields import (
    LenientModel,
    RepetitionPenalty,
    Temperature,
    TokenId,
    TopK,
    TopP,
    list_of,
    whole,
)

MOST_ENDINGS = 16
MOST_SHOWN = 80
OPENAI_DEFAULTS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0}


def listed(value):
    """`eos_token_id` is none, one id, or a list of them."""
    given = [] if value is None else value
    return given if isinstance(given, list) else [given]


Endings = Annotated[list_of(TokenId, MOST_ENDINGS), BeforeValidator(listed)]


class ModelConfig(LenientModel):
    """Of config.json, before the engine reads the whole of it."""

    vocab_size: whole(ge=1, lt=2**31)
    eos_token_id: Endings = ()


class GenerationConfig(LenientModel):
    """Of generation_config.json, with the bounds that requests have; null stands for none."""

    do_sample: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    repetition_penalty: RepetitionPenalty | None = None
    eos_token_id: Endings = ()


def read_config(path):
    """Return the fields of a config.json; BadInputError names the first that is wrong."""
    config = read_fields(path, ModelConfig)
    return checked_endings(path, config, config.vocab_size)


def read_generation_config(path, vocab_size):
    """Return the fields of a file, none of them where there is none; BadInputError as above."""
    if not path.is_file():
        return GenerationConfig()
    return checked_endings(path, read_fields(path, GenerationConfig), vocab_size)


def read_fields(path, model):
    try:
        return model.model_validate(read_object(path))
    except ValidationError as error:
        raise BadInputError(f"{path}: {first_fault(error)}") from error


def first_fault(error):
    found = error.errors()[0]
    if found["type"] == "missing":
        return f"{found['loc'][0]} is missing"
    shown = repr(found["input"])
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[:MOST_SHOWN]} and {len(shown) - MOST_SHOWN} characters more"
    return f"{found['loc'][0]}: {found['msg']}, found {shown}"


def checked_endings(path, config, vocab_size):
    wrong = [token_id for token_id in config.eos_token_id if token_id >= vocab_size]
    if wrong:
        known = f"expected tokens of the vocabulary, 0 to {vocab_size - 1}"
        raise BadInputError(f"{path}: eos_token_id: {known}, found {wrong[0]}")
    return config


def sampling_defaults(config):
    """Return what a request that names no value gets: the checkpoint's, else OpenAI's."""
    found = {name: getattr(config, name) for name in OPENAI_DEFAULTS}
    defaults = {
        name: OPENAI_DEFAULTS[name] if value is None else value for name, value in found.items()
    }
    if config.do_sample is False:
        defaults["temperature"] = 0.0
    return defaults

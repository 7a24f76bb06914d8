"""What the server reads of generation_config.json, field by field."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import read_object
from glm_engine.server.fields import LenientModel, MinP, RepetitionPenalty, Temperature, TopK, TopP
from glm_engine.text import conversation
from glm_engine.text.conversation import OPENAI_DEFAULTS

if TYPE_CHECKING:
    from glm_engine.text.conversation import Json


MOST_SHOWN = 80
GENERATION_CONFIG_FILE = "generation_config.json"
AUTO, NEITHER = "auto", ("none", "vllm")
OVERRIDES = "--override-generation-config"
NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})
NEUTRAL = {
    "bad_words_ids": [],
    "begin_suppress_tokens": [],
    "constraints": [],
    "diversity_penalty": 0,
    "dola_layers": None,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": [],
    "forced_bos_token_id": None,
    "forced_decoder_ids": [],
    "forced_eos_token_id": None,
    "frequency_penalty": 0,
    "guidance_scale": 1,
    "max_length": 20,
    "max_new_tokens": None,
    "max_time": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": 0,
    "presence_penalty": 0,
    "remove_invalid_values": False,
    "renormalize_logits": False,
    "sequence_bias": [],
    "stop_strings": [],
    "suppress_tokens": [],
    "token_healing": False,
    "top_h": None,
    "typical_p": 1,
    "watermarking_config": None,
}


class GenerationConfig(LenientModel):
    """Of generation_config.json, with the bounds that requests have; null stands for none."""

    model_config = ConfigDict(extra="allow")
    do_sample: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None


class Overrides(GenerationConfig):
    """What the command line may say in the place of generation_config.json."""

    model_config = ConfigDict(extra="forbid")


def generation_config_path(folder: Path, source: str) -> Path | None:
    """Return the file of a checkpoint's folder, of another folder, or None where none is wanted.

    source: `AUTO`, a word of `NEITHER`, or a folder.
    """
    if source in NEITHER:
        return None
    if source == AUTO:
        return folder / GENERATION_CONFIG_FILE
    path = Path(source) / GENERATION_CONFIG_FILE
    if not path.is_file():
        raise BadInputError(
            f"{path}: no such file; the --generation-config folder must contain one"
        )
    return path


def read_overrides(values: Mapping[str, Any]) -> "Json":
    """Return the fields that are set in an object; else BadInputError."""
    try:
        found = Overrides.model_validate(values)
    except ValidationError as error:
        raise BadInputError(f"{OVERRIDES}: {first_fault(error)}; {KNOWN}") from error
    return found.model_dump(exclude_none=True)


def read_generation_config(path: Path | None) -> GenerationConfig:
    """Return the fields of a file; without one, or with None in its place, no field is set.

    BadInputError names the first that is wrong. The engine reads `eos_token_id` itself.
    """
    if path is None or not path.is_file():
        return GenerationConfig()
    try:
        return GenerationConfig.model_validate(read_object(path))
    except ValidationError as error:
        raise BadInputError(f"{path}: {first_fault(error)}") from error


KNOWN = f"known fields: {', '.join(sorted(Overrides.model_fields))}"


def first_fault(error: ValidationError) -> str:
    found = error.errors()[0]
    shown = repr(found["input"])
    if len(shown) > MOST_SHOWN:
        shown = f"{shown[:MOST_SHOWN]} and {len(shown) - MOST_SHOWN} more characters"
    return f"{found['loc'][0]}: {found['msg']}, found {shown}"


def warn_of_unapplied(
    path: Path | None, config: GenerationConfig, warn: Callable[[str], object]
) -> None:
    """Give `warn` a line with the fields that would change an answer and are not applied."""
    found = [
        name for name, value in (config.model_extra or {}).items() if not is_neutral(name, value)
    ]
    if found:
        warn(f"{path}: ignoring unsupported fields: {', '.join(sorted(found))}")


def is_neutral(name: str, value: object) -> bool:
    """Say whether a field of generation_config.json changes no answer, as far as is known."""
    return name not in NEUTRAL or value in (None, NEUTRAL[name]) or value == {}


def sampling_defaults(
    config: GenerationConfig, overrides: Mapping[str, Any] = NO_OVERRIDES
) -> "Json":
    """Return what a request that sets no value gets: an override, the checkpoint's, or OpenAI's."""
    defaults = conversation.sampling_defaults({**config.model_dump(), **overrides})
    return defaults | {name: overrides[name] for name in OPENAI_DEFAULTS if name in overrides}

"""Fields that OpenAI's endpoints share, those of vLLM among them, and what they ask for."""

from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, Field

from glm_engine.server.fields import (
    MAX_ALLOWED,
    MAX_BAD_WORDS,
    MAX_CHOICES,
    MAX_LOGPROBS,
    MAX_STOPS,
    MAX_TOKENS,
    Biases,
    Harmless,
    MinP,
    RepetitionPenalty,
    Stops,
    StopText,
    StrictModel,
    Temperature,
    TokenId,
    TopK,
    TopP,
    list_of,
    only,
    whole,
)
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.json_bodies import check_texts
from glm_engine.server.interface import EXACT_METHODS, Constraint

MAX_TEXTS = 4096
Schema = dict[str, Any]
Texts = list_of(str, MAX_TEXTS, least=1)
WHOLE_CONTEXT = -1
LOGPROB_BYTES = 8
ANSWERS_AT_ONCE = 8
MAX_SCHEMA_CHARACTERS = 2**20
RESPONSE_FORMAT = "response_format"
SCHEMA_PARAM = f"{RESPONSE_FORMAT}.json_schema.schema"


class StreamOptions(StrictModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: Harmless = None


class SamplingFields(StrictModel):
    """How tokens are drawn and when they end; null stands for the default."""

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: whole(ge=1, le=MAX_CHOICES) | None = 1
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None
    frequency_penalty: float | None = Field(0, ge=-2, le=2)
    presence_penalty: float | None = Field(0, ge=-2, le=2)
    seed: whole(ge=-(2**63), lt=2**64) | None = None
    stop: Stops | None = None
    stop_token_ids: list_of(TokenId, MAX_STOPS) | None = None
    logit_bias: Biases | None = None
    allowed_token_ids: list_of(TokenId, MAX_ALLOWED, least=1) | None = None
    bad_words: list_of(StopText, MAX_BAD_WORDS) | None = None
    max_tokens: whole(ge=1, le=MAX_TOKENS) | None = None
    min_tokens: whole(ge=0, le=MAX_TOKENS) | None = 0
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    include_stop_str_in_output: bool | None = False
    priority: whole(gt=-(2**31), lt=2**31) | None = 0
    timeout_seconds: float | None = Field(None, gt=0, le=86400)
    user: Harmless = None
    metadata: Harmless = None
    store: Harmless = None
    service_tier: Harmless = None
    safety_identifier: Harmless = None
    prompt_cache_key: Harmless = None
    prompt_cache_retention: Harmless = None
    prompt_cache_options: Harmless = None
    request_id: Harmless = None
    spaces_between_special_tokens: Harmless = None
    use_beam_search: only(False) = None
    length_penalty: only(1) = None
    prompt_logprobs: only() = None
    truncate_prompt_tokens: only() = None
    return_token_ids: only(False) = None
    no_stop_trim: only(False) = None
    logits_processors: only([]) = None
    return_hidden_states: only(False) = None


class JsonSchema(StrictModel):
    name: str | None = None
    description: str | None = None
    schema_: Schema | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(StrictModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class StructuredOutputs(StrictModel):
    json_: Schema | str | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: str | None = None
    choice: Texts | None = None
    grammar: str | None = None
    structural_tag: only() = None
    whitespace_pattern: only() = None
    disable_fallback: Harmless = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: only(False) = None


OTHERS = only(reason="use structured_outputs instead")


class ConstraintFields(StrictModel):
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: Texts | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: only() = None
    guided_decoding_backend: Harmless = None
    grammar: OTHERS = None
    regex: OTHERS = None
    ebnf: OTHERS = None
    json_schema: OTHERS = None


def not_zero(value):
    if value == 0:
        raise ValueError("expected -1 (as many as fit in the context) or a positive number")
    return value


class PromptFields(StrictModel):
    prompt_logprobs: whole(ge=0, le=MAX_LOGPROBS) | None = None
    truncate_prompt_tokens: (
        Annotated[whole(ge=WHOLE_CONTEXT, le=MAX_TOKENS), AfterValidator(not_zero)] | None
    ) = None
    return_token_ids: bool | None = False


def num_kept(service, fields, num_outputs):
    """Return how many of a prompt's last tokens to keep, None for all; -1 leaves room to answer."""
    wanted, most = fields.truncate_prompt_tokens, service.max_seq
    if wanted is not None and wanted > most:
        message = f"truncate_prompt_tokens ({wanted}) exceeds the context length of {most} tokens"
        raise ApiError(400, message, "truncate_prompt_tokens")
    return max(1, most - num_outputs) if wanted == WHOLE_CONTEXT else wanted


def num_prompt_logprobs(fields, num_echoed=-1):
    """Return how many alternatives to ask the engine for, -1 for no log-probabilities.

    num_echoed: those that an echo lists of the prompt beside `prompt_logprobs`.
    """
    if fields.prompt_logprobs is None:
        return num_echoed
    if fields.stream:
        message = (
            "prompt_logprobs cannot be used with streaming; leave it out or set stream to false"
        )
        raise ApiError(400, message, "prompt_logprobs")
    return max(num_echoed, fields.prompt_logprobs)


def hold_prompt_logprobs(service, fields, num_tokens, num_best):
    """Count what the log-probabilities of so many prompt tokens will take until they are sent."""
    size = LOGPROB_BYTES * (num_best + 1) * num_tokens
    most = service.settings.max_bodies_bytes // ANSWERS_AT_ONCE
    if size > most:
        param = "logprobs" if fields.prompt_logprobs is None else "prompt_logprobs"
        message = (
            f"{param}: log probabilities of {num_tokens} prompt tokens need {size} bytes; the "
            f"maximum per answer is {most} (an eighth of --max-bodies-size)"
        )
        raise ApiError(400, message, param)
    service.gate.hold_answer(size)


def constraints_of(fields):
    """Return what a request without tools asks for."""
    return spaced(fields.structured_outputs, form_constraints(fields))


def form_constraints(fields):
    """Return what the fields of an answer's form ask for."""
    found = format_constraints(fields.response_format)
    outputs = fields.structured_outputs
    if outputs:
        found += json_constraint("structured_outputs.json", outputs.json_)
        found += text_constraints("structured_outputs.", outputs)
        if outputs.json_object:
            found.append(Constraint("structured_outputs.json_object", "json_object"))
    found += json_constraint("guided_json", fields.guided_json)
    return found + text_constraints("guided_", fields)


def format_constraints(form):
    if form is None or form.type == "text":
        return []
    if form.type == "json_object":
        return [Constraint(RESPONSE_FORMAT, "json_object")]
    return [schema_constraint(form.json_schema, SCHEMA_PARAM)]


def schema_constraint(form, param):
    """Return what a schema with its strictness asks for; `param` is where the schema stands."""
    if form is None or form.schema_ is None:
        raise ApiError(400, f"{param}: expected a JSON schema", param)
    options = {"strict": bool(form.strict), "name": param}
    return Constraint(param, "json_schema", (form.schema_,), options)


def json_constraint(param, schema):
    if schema is None:
        return []
    if isinstance(schema, str):
        if len(schema) > MAX_SCHEMA_CHARACTERS:
            most = MAX_SCHEMA_CHARACTERS
            message = f"{param}: expected at most {most} characters, got {len(schema)}"
            raise ApiError(400, message, param)
        check_texts([schema], f"the JSON in {param}")
        try:
            schema = orjson.loads(schema)
        except ValueError as error:
            raise ApiError(400, f"{param}: invalid JSON: {error}", param) from error
    return [Constraint(param, "json_schema", (schema,), {"name": param})]


def text_constraints(place, fields):
    """Return what fields ask for whose names begin with the last word of a place."""
    found = []
    for method in EXACT_METHODS:
        value = getattr(fields, f"{place.rpartition('.')[2]}{method}")
        if value is not None:
            param = f"{place}{method}"
            found.append(Constraint(param, method, (value,), {"name": param}))
    return found


def spaced(outputs, constraints):
    """Return constraints with what the request says of white space."""
    if outputs is None or outputs.disable_any_whitespace is None:
        return constraints
    return [one.spaced(not outputs.disable_any_whitespace) for one in constraints]

"""Fields that OpenAI's endpoints share, those of vLLM among them, and what they ask for."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from glm_engine.core.checks import FieldError
from glm_engine.server.fields import (
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
    items,
    only,
    whole,
)
from glm_engine.server.http.api_errors import ApiError
from glm_engine.server.http.json_bodies import check_texts
from glm_engine.server.prompts import WHOLE_CONTEXT
from glm_engine.text.conversation import (
    EXACT_METHODS,
    MAX_ALLOWED,
    MAX_BAD_WORDS,
    MAX_CHOICES,
    MAX_LOGPROBS,
    MAX_STOPS,
    MAX_TOKENS,
    Constraint,
    Json,
    PromptLogprobs,
    form_constraints,
    format_constraints,
)

MAX_TEXTS = 4096
Schema = dict[str, Any]
Texts = Annotated[list[str], items(MAX_TEXTS, least=1)]
MAX_SCHEMA_CHARACTERS = 2**20
RESPONSE_FORMAT = "response_format"
SCHEMA_PARAM = f"{RESPONSE_FORMAT}.json_schema.schema"


class AnyStreamOptions(StrictModel):
    """What an interface lets its streams be asked for."""


class StreamOptions(AnyStreamOptions):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False
    include_obfuscation: Harmless = None


class SamplingFields(StrictModel):
    """How tokens are drawn and when they end; null stands for the default."""

    model: str | None = None
    stream: bool | None = False
    stream_options: AnyStreamOptions | None = None
    n: Annotated[int, whole(ge=1, le=MAX_CHOICES)] | None = 1
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None
    frequency_penalty: float | None = Field(0, ge=-2, le=2)
    presence_penalty: float | None = Field(0, ge=-2, le=2)
    seed: Annotated[int, whole(ge=-(2**63), lt=2**64)] | None = None
    stop: Stops | None = None
    stop_token_ids: Annotated[list[TokenId], items(MAX_STOPS)] | None = None
    logit_bias: Biases | None = None
    allowed_token_ids: Annotated[list[TokenId], items(MAX_ALLOWED, least=1)] | None = None
    bad_words: Annotated[list[StopText], items(MAX_BAD_WORDS)] | None = None
    max_tokens: Annotated[int, whole(ge=1, le=MAX_TOKENS)] | None = None
    min_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = 0
    ignore_eos: bool | None = False
    skip_special_tokens: bool | None = True
    include_stop_str_in_output: bool | None = False
    priority: Annotated[int, whole(gt=-(2**31), lt=2**31)] | None = 0
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
    use_beam_search: Annotated[Any, only(False)] = None
    length_penalty: Annotated[Any, only(1)] = None
    prompt_logprobs: Annotated[Any, only()] = None
    truncate_prompt_tokens: Annotated[Any, only()] = None
    return_token_ids: Annotated[Any, only(False)] = None
    no_stop_trim: Annotated[Any, only(False)] = None
    logits_processors: Annotated[Any, only([])] = None
    return_hidden_states: Annotated[Any, only(False)] = None


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
    structural_tag: Annotated[Any, only()] = None
    whitespace_pattern: Annotated[Any, only()] = None
    disable_fallback: Harmless = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: Annotated[Any, only(False)] = None


Others = Annotated[Any, only(reason="use structured_outputs instead")]


class ConstraintFields(StrictModel):
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: Texts | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: Annotated[Any, only()] = None
    guided_decoding_backend: Harmless = None
    grammar: Others = None
    regex: Others = None
    ebnf: Others = None
    json_schema: Others = None


def not_zero(value: int | None) -> int | None:
    if value == 0:
        raise ValueError("expected -1 (as many as fit in the context) or a positive number")
    return value


class PromptFields(SamplingFields):
    stream_options: StreamOptions | None = None
    prompt_logprobs: Annotated[int, whole(ge=0, le=MAX_LOGPROBS)] | None = None
    truncate_prompt_tokens: (
        Annotated[int, whole(ge=WHOLE_CONTEXT, le=MAX_TOKENS), AfterValidator(not_zero)] | None
    ) = None
    return_token_ids: bool | None = False


def prompt_logprobs_of(
    fields: PromptFields, is_streamed: bool | None, num_echoed: int = -1, of_all: bool = False
) -> PromptLogprobs:
    """Return what is asked of the prompt's log-probabilities.

    num_echoed: those that an echo lists of the prompt beside `prompt_logprobs`.
    """
    if fields.prompt_logprobs is None:
        return PromptLogprobs(num_echoed, "logprobs", of_all)
    if is_streamed:
        message = (
            "prompt_logprobs cannot be used with streaming; leave it out or set stream to false"
        )
        raise ApiError(400, message, "prompt_logprobs")
    return PromptLogprobs(max(num_echoed, fields.prompt_logprobs), of_all=of_all)


def response_format_constraints(fields: ConstraintFields) -> list[Constraint]:
    """Return what `response_format` asks for."""
    form = fields.response_format
    if form is None:
        return []
    found = form.json_schema
    schema, strict = (found.schema_, found.strict) if found else (None, None)
    return format_constraints(form.type, schema, strict, RESPONSE_FORMAT, SCHEMA_PARAM)


def structured_constraints(fields: ConstraintFields) -> list[Constraint]:
    """Return what vLLM's fields ask for."""
    guided = {name: getattr(fields, f"guided_{name}") for name in ("json", *EXACT_METHODS)}
    stated, outputs = dict[str, Any](), fields.structured_outputs
    if outputs:
        names = {"json_", "json_object", *EXACT_METHODS}
        stated = outputs.model_dump(by_alias=True, include=names)
    found = []
    for place, form in (("structured_outputs.", stated), ("guided_", guided)):
        check_schema_text(f"{place}json", form.get("json"))
        found += form_constraints(place, form)
    return found


def check_schema_text(param: str, schema: Json | str | None) -> None:
    """Refuse the text of a schema that is too long, or that holds too much."""
    if isinstance(schema, str):
        if len(schema) > MAX_SCHEMA_CHARACTERS:
            problem = f"expected at most {MAX_SCHEMA_CHARACTERS} characters, got {len(schema)}"
            raise FieldError(param, problem)
        check_texts([schema], f"the JSON in {param}")


def disables_spaces(fields: ConstraintFields) -> bool | None:
    """Return what the request says of white space."""
    outputs = fields.structured_outputs
    return outputs.disable_any_whitespace if outputs else None

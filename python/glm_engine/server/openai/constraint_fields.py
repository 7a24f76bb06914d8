"""Fields that say what an answer must look like, OpenAI's and vLLM's."""

from typing import Any, Literal

from pydantic import Field

from glm_engine.server.fields import Harmless, StrictModel, list_of, only

MAX_TEXTS = 4096
Schema = dict[str, Any]
Texts = list_of(str, MAX_TEXTS, least=1)


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

"""A JSON document that an answer must be, and how far a client insists on its schema."""

from dataclasses import dataclass, replace
from typing import Self

from glm_engine.text.dialogue.schema import Schema
from glm_engine.text.grammar.proof import ProblemOf
from glm_engine.text.grammar.relaxing import Relaxation
from glm_engine.text.grammar.schemas import JsonSchema, ProblemFinder, prepared


def schema_grammar(schema: Schema) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(schema)


@dataclass(frozen=True)
class Document:
    """Not strict: what llguidance cannot enforce is left out, else that is an error."""

    name: str
    schema: JsonSchema
    strict: bool
    any_whitespace: bool

    def prepared(self) -> Schema:
        return prepared(self.schema, self.strict, self.any_whitespace)

    def relaxed(self, problem_of: ProblemOf) -> Self:
        """Return it without what cannot be enforced; BadInputError where it is no schema."""
        if self.strict:
            return self

        def problem_of_part(part: Schema) -> str:
            return problem_of(schema_grammar(prepared(part, False, self.any_whitespace)))

        schema = self.schema if isinstance(self.schema, dict) else {}
        return replace(self, schema=Relaxation(self.name, schema, problem_of_part).relaxed())

    def bare(self) -> Self:
        """Return it with nothing but its type."""
        if self.strict or not isinstance(self.schema, dict):
            return self
        is_typed = isinstance(self.schema.get("type"), str)
        return replace(self, schema={"type": self.schema["type"]} if is_typed else {})

    def explain(self, problem: str, problem_of: ProblemOf) -> str:
        def problem_of_part(part: Schema) -> str:
            return problem_of(schema_grammar(prepared(part, self.strict, any_whitespace=False)))

        pointer, problem = ProblemFinder(self.schema, problem_of_part).find(problem)
        return f"{self.name}#{pointer}: {problem}"

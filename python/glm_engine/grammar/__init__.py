"""What a text must look like, as masks over the next token."""

from glm_engine.grammar.compiler import Draft, GrammarCompiler
from glm_engine.grammar.limits import Limits
from glm_engine.grammar.matcher import Grammar, Matcher
from glm_engine.grammar.proof import CostlyGrammarError
from glm_engine.grammar.spelling import CallSpelling

__all__ = [
    "CallSpelling",
    "CostlyGrammarError",
    "Draft",
    "Grammar",
    "GrammarCompiler",
    "Limits",
    "Matcher",
]

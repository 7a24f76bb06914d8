"""What a text must look like, as masks over the next token."""

from glm_engine.text.grammar.compiler import Draft, GrammarCompiler
from glm_engine.text.grammar.cost_limits import Limits
from glm_engine.text.grammar.matcher import Grammar, Matcher
from glm_engine.text.grammar.proof import CostlyGrammarError
from glm_engine.text.grammar.spelling import CallSpelling

__all__ = [
    "CallSpelling",
    "CostlyGrammarError",
    "Draft",
    "Grammar",
    "GrammarCompiler",
    "Limits",
    "Matcher",
]

"""What a text must look like, as masks over the next token."""

from glm_engine.grammar.compiler import Draft, Grammar, GrammarCompiler
from glm_engine.grammar.limits import Limits
from glm_engine.grammar.matcher import Matcher
from glm_engine.grammar.spelling import CallSpelling

__all__ = ["CallSpelling", "Draft", "Grammar", "GrammarCompiler", "Limits", "Matcher"]

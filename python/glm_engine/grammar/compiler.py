"""Schemas, regular expressions, choices and tools to grammars."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from glm_engine.dialogue.tags import THINK_END, Opening
from glm_engine.errors import BadInputError
from glm_engine.grammar.calls import CallRules, tools_of
from glm_engine.grammar.lark import alternatives, checked_text
from glm_engine.grammar.limits import PARSER_LIMITS, Limits, first_line
from glm_engine.grammar.matcher import Matcher
from glm_engine.grammar.proof import CostlyGrammarError, Proof
from glm_engine.grammar.schemas import ProblemFinder, check_schema, prepared
from glm_engine.grammar.vocabulary import Vocabulary

ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True)
class Grammar:
    """A compiled grammar; any number of answers may go through it at once."""

    vocabulary: Vocabulary
    state: object

    def start(self, opening=Opening.ANSWER):
        """Return a matcher at the beginning; a thought is free until `</think>` has come."""
        if opening is Opening.THOUGHT and self.vocabulary.thought is None:
            path = self.vocabulary.tokenizer.path.name
            raise BadInputError(f"{path}: no grammar can follow a thought: {THINK_END} is no token")
        return Matcher(self.vocabulary, self.state.deep_copy(), opening)


@dataclass(frozen=True)
class Draft:
    """A grammar as llguidance reads it, to be compiled; equal texts make equal grammars.

    explain: turns the problem that llguidance states into a line that names its place.
    parts: drafts that must make grammars by themselves, too.
    """

    name: str
    text: str
    explain: Callable
    parts: tuple = ()


class GrammarCompiler:
    """Drafts grammars for one checkpoint, which costs little, and compiles them.

    Every method may be called from any thread. spelling: a `CallSpelling`, needed for
    `tool_calls` alone.
    """

    def __init__(self, tokenizer, vocab_size, ending_ids, spelling=None, limits=None):
        from llguidance import LLParserLimits

        self.limits = limits or Limits()
        self.vocabulary = Vocabulary(tokenizer, vocab_size, ending_ids)
        self.spelling = spelling
        self.parser_limits = LLParserLimits(**PARSER_LIMITS)
        self.proof = Proof(self.limits)

    def close(self):
        """Give up what is being compiled, and end the process."""
        self.proof.close()

    def compile(self, draft):
        """Return the grammar of a draft: one at a time, each for seconds at most."""
        from llguidance import LLMatcher

        for part in draft.parts:
            self.compile(part)
        try:
            if problem := self.proof.problem_of(draft.text):
                raise BadInputError(draft.explain(problem))
        except CostlyGrammarError as error:
            raise BadInputError(f"{draft.name}: {error}") from error
        state = LLMatcher(
            self.vocabulary.tokens, draft.text, log_level=0, limits=self.parser_limits
        )
        if state.is_error():
            raise BadInputError(f"{draft.name}: {first_line(state.get_error())}")
        if not Matcher(self.vocabulary, state).mask().any():
            raise BadInputError(f"{draft.name}: no token of this model can begin it")
        return Grammar(self.vocabulary, state)

    def json_schema(self, schema, strict=True, name="schema", any_whitespace=False):
        """Draft the documents of a schema.

        Not strict: what llguidance cannot enforce of it is left out, else that is an error.
        any_whitespace: what white space may stand where JSON allows it, else one space behind
        commas and colons.
        """
        check_schema(name, schema, self.limits)
        text = schema_grammar(prepared(schema, strict, any_whitespace))
        return Draft(name, text, partial(self.schema_problem, name, schema, strict))

    def json_object(self, any_whitespace=False):
        """Draft any JSON object."""
        return self.json_schema(ANY_OBJECT, any_whitespace=any_whitespace)

    def regex(self, pattern, name="regex"):
        """Draft the texts that a regular expression matches as a whole."""
        from llguidance import LLMatcher

        self.check_size(name, checked_text(name, pattern))
        return Draft(name, LLMatcher.grammar_from_regex(pattern), partial(describe, name))

    def choice(self, texts, name="choice"):
        """Draft a list of texts."""
        if not isinstance(texts, list) or not texts:
            raise BadInputError(f"{name}: expected a list of at least one text")
        for at, text in enumerate(texts):
            checked_text(f"{name}[{at}]", text)
        grammar = f"start: CHOICE\nCHOICE: {alternatives(texts)}\n"
        self.check_size(name, grammar)
        return Draft(name, grammar, partial(describe, name))

    def tool_calls(self, tools, name=None, at_least=1, at_most=None, any_whitespace=False):
        """Draft calls of the tools, or of the one that is named.

        at_least: 0 lets any text come, before calls or without one.
        tools: the OpenAI list, `{"type": "function", "function": {"name", "parameters"}}`.
        """
        chosen = tools_of(tools, name, self.limits, any_whitespace)
        text = self.call_rules().text(chosen, at_least, at_most)
        self.check_size("tools", text)
        return Draft("tools", text, partial(self.tools_problem, chosen))

    def calls_or_document(
        self, tools, schema, strict=True, name="schema", at_most=None, any_whitespace=False
    ):
        """Draft either calls of the tools or one document of a schema."""
        document = self.json_schema(schema, strict, name, any_whitespace)
        chosen = tools_of(tools, None, self.limits, any_whitespace)
        form = prepared(schema, strict, any_whitespace)
        text = self.call_rules().text(chosen, 1, at_most, form)
        return Draft("tools", text, partial(self.tools_problem, chosen), (document,))

    def call_rules(self):
        if self.spelling is None:
            raise BadInputError("tools: the checkpoint's template spells no calls to enforce")
        return CallRules(self.spelling, self.vocabulary.tag)

    def check_size(self, name, text):
        size = len(text.encode("utf-8"))
        if size > self.limits.max_bytes:
            raise BadInputError(f"{name}: {size} bytes; at most {self.limits.max_bytes} are taken")

    def schema_problem(self, name, schema, strict, problem):
        def problem_of(part):
            return self.proof.problem_of(schema_grammar(prepared(part, strict, any_whitespace=False)))

        finder = ProblemFinder(schema, problem_of, self.limits.patience_seconds)
        pointer, problem = finder.find(problem)
        return f"{name}#{pointer}: {problem}"

    def tools_problem(self, tools, problem):
        for tool in tools:
            for pointer, schema in tool.json_values():
                if found := self.proof.problem_of(schema_grammar(schema)):
                    return f"{tool.place}.parameters#{pointer}: {first_line(found)}"
        return describe("tools", problem)


def schema_grammar(schema):
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_json_schema(schema)


def describe(name, problem):
    return f"{name}: {first_line(problem)}"

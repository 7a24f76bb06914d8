"""Schemas, regular expressions, choices and tools to grammars."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.schema import Schema
from glm_engine.text.grammar.call_rules import CallRules
from glm_engine.text.grammar.cost_limits import PARSER_LIMITS, Limits, first_line
from glm_engine.text.grammar.documents import Document, schema_grammar
from glm_engine.text.grammar.lark import alternatives, checked_text
from glm_engine.text.grammar.matcher import Grammar, Matcher
from glm_engine.text.grammar.own import as_lark, grammar_problem
from glm_engine.text.grammar.proof import CostlyGrammarError, Inquiry, ProblemOf, Proof
from glm_engine.text.grammar.schemas import check_size, checked_schema
from glm_engine.text.grammar.spelling import CallSpelling
from glm_engine.text.grammar.tidying import tidied
from glm_engine.text.grammar.tools import Tool, tools_of
from glm_engine.text.grammar.vocabulary import Vocabulary
from glm_engine.text.tokenizer import GlmTokenizer

ANY_OBJECT = {"type": "object"}
NICENESS = 10


@dataclass(frozen=True)
class Draft:
    """A grammar as llguidance reads it, to be compiled; equal texts make equal grammars.

    explain(problem, problem_of): turns the problem that llguidance states into a line that names
    its place; problem_of is that of other grammars, CostlyGrammarError where none may be asked for.
    parts: drafts that must make grammars by themselves, too. Where not all of it is strict,
    relaxed(problem_of) returns a draft without what cannot be enforced, and least() one without
    any schema that is not strict.
    """

    name: str
    text: str
    explain: Callable[[str, ProblemOf], str]
    parts: tuple["Draft", ...] = ()
    relaxed: "Callable[[ProblemOf], Draft] | None" = None
    least: "Callable[[], Draft] | None" = None


class GrammarCompiler:
    """Drafts grammars for one checkpoint, which costs little, proves that they compile, and does.

    Every method may be called from any thread; two drafts are proved at once where one of them is
    to be proved quickly. spelling: a `CallSpelling`, needed for
    `tool_calls` alone.
    """

    def __init__(
        self,
        tokenizer: GlmTokenizer,
        vocab_size: int,
        ending_ids: Collection[int],
        spelling: CallSpelling | None = None,
        limits: Limits | None = None,
    ) -> None:
        from llguidance import LLParserLimits

        self.limits = limits or Limits()
        self.vocabulary = Vocabulary(tokenizer, vocab_size, ending_ids)
        self.spelling = spelling
        self.parser_limits = LLParserLimits(**PARSER_LIMITS)
        self.proof = Proof(self.limits, self.limits.seconds, NICENESS)
        quick = self.limits.quick_seconds, 0, self.limits.quick_patience_seconds
        self.quick_proof = Proof(self.limits, *quick)

    def close(self) -> None:
        """Give up what is being proved, and end the processes."""
        self.proof.close()
        self.quick_proof.close()

    def compile(self, draft: Draft) -> Grammar:
        """Return the grammar of a draft."""
        proved, _ = self.prove(draft)
        return self.build(proved)

    def prove(self, draft: Draft, is_quick: bool = False) -> tuple[Draft, int]:
        """Return what of a draft makes a grammar, and how many bytes that takes.

        BadInputError where it makes none; CostlyGrammarError where that, and the place of a
        problem, cannot be had in time.
        """
        if is_quick:
            return self.prove_quickly(draft)
        try:
            return prove(draft, Inquiry(self.proof))
        except CostlyGrammarError as error:
            if draft.least:
                return self.prove(draft.least())
            raise CostlyGrammarError(f"{draft.name}: {error}") from error

    def prove_quickly(self, draft: Draft) -> tuple[Draft, int]:
        inquiry = Inquiry(self.quick_proof)
        try:
            return prove(draft, inquiry)
        except NoAnswerError as error:
            raise self.quick_proof.costly() from error
        except CostlyGrammarError as error:
            raise CostlyGrammarError(f"{draft.name}: {error}") from error
        except BadInputError as error:
            if inquiry.is_spent:
                raise self.quick_proof.costly() from error
            raise

    def build(self, draft: Draft) -> Grammar:
        """Return the grammar of a draft that was proved to have one."""
        from llguidance import LLMatcher

        state = LLMatcher(
            self.vocabulary.tokens, draft.text, log_level=0, limits=self.parser_limits
        )
        if state.is_error():
            raise BadInputError(f"{draft.name}: {first_line(state.get_error())}")
        grammar = Grammar(self.vocabulary, state)
        if not Matcher(grammar).mask().any():
            raise BadInputError(f"{draft.name}: no token in the vocabulary can start a match")
        return grammar

    def json_schema(
        self,
        schema: object,
        strict: bool = True,
        name: str = "schema",
        any_whitespace: bool = False,
    ) -> Draft:
        """Draft the documents of a schema.

        Not strict: what llguidance cannot enforce of it is left out, else that is an error.
        any_whitespace: what white space may stand where JSON allows it, else one space behind
        commas and colons.
        """
        checked = tidied(checked_schema(name, schema, self.limits))
        return drawn(document_draft, Document(name, checked, strict, any_whitespace))

    def json_object(self, any_whitespace: bool = False) -> Draft:
        """Draft any JSON object."""
        return self.json_schema(ANY_OBJECT, any_whitespace=any_whitespace)

    def regex(self, pattern: object, name: str = "regex") -> Draft:
        """Draft the texts that a regular expression matches as a whole."""
        from llguidance import LLMatcher

        checked = checked_text(name, pattern)
        self.check_size(name, checked)
        return Draft(name, LLMatcher.grammar_from_regex(checked), partial(describe, name))

    def grammar(self, text: object, name: str = "grammar") -> Draft:
        """Draft the texts of a grammar in Lark's syntax, or in EBNF."""
        from llguidance import LLMatcher

        lark = as_lark(name, text)
        self.check_size(name, lark)
        return Draft(name, LLMatcher.grammar_from_lark(lark), partial(grammar_problem, name))

    def choice(self, texts: object, name: str = "choice") -> Draft:
        """Draft a list of texts."""
        if not isinstance(texts, list) or not texts:
            raise BadInputError(f"{name}: expected a list with at least one string")
        for at, text in enumerate(texts):
            checked_text(f"{name}[{at}]", text)
        grammar = f"start: CHOICE\nCHOICE: {alternatives(texts)}\n"
        self.check_size(name, grammar)
        return Draft(name, grammar, partial(describe, name))

    def tool_calls(
        self,
        tools: Iterable[Mapping[str, Any]],
        name: str | None = None,
        at_least: int = 1,
        at_most: int | None = None,
        any_whitespace: bool = False,
    ) -> Draft:
        """Draft calls of the tools, or of the one that is named.

        at_least: 0 lets any text come, before calls or without one.
        tools: the OpenAI list, `{"type": "function", "function": {"name", "parameters"}}`.
        """
        chosen = tools_of(tools, name, self.limits, any_whitespace)
        return drawn(partial(self.calls_draft, at_least, at_most), *chosen)

    def calls_or_document(
        self,
        tools: Iterable[Mapping[str, Any]],
        schema: object,
        strict: bool = True,
        name: str = "schema",
        at_most: int | None = None,
        any_whitespace: bool = False,
    ) -> Draft:
        """Draft either calls of the tools or one document of a schema."""
        checked = tidied(checked_schema(name, schema, self.limits))
        document = Document(name, checked, strict, any_whitespace)
        chosen = tools_of(tools, None, self.limits, any_whitespace)

        def draw(document: Document, *chosen: Tool) -> Draft:
            made = self.calls_draft(1, at_most, *chosen, document=document.prepared())
            return replace(made, parts=(document_draft(document),))

        return drawn(draw, document, *chosen)

    def calls_draft(
        self, at_least: int, at_most: int | None, *tools: Tool, document: Schema | None = None
    ) -> Draft:
        text = self.call_rules().text(tools, at_least, at_most, document)
        self.check_size("tools", text)
        return Draft("tools", text, partial(tools_problem, tools))

    def call_rules(self) -> CallRules:
        if self.spelling is None:
            raise BadInputError(
                "tools: cannot enforce tool calls: the tool-call format cannot be determined "
                "from the chat template"
            )
        return CallRules(self.spelling, self.vocabulary.tag, self.limits)

    def check_size(self, name: str, text: str) -> None:
        check_size(name, len(text.encode("utf-8")), self.limits)


def drawn(draw: Callable[..., Draft], *forms: Document | Tool) -> Draft:
    """Return the draft that is drawn of documents and tools, and how it is drawn of less."""
    draft = draw(*forms)
    if all(form.strict for form in forms):
        return draft
    return replace(
        draft,
        relaxed=lambda problem_of: draw(*[form.relaxed(problem_of) for form in forms]),
        least=lambda: draw(*[form.bare() for form in forms]),
    )


def document_draft(document: Document) -> Draft:
    return Draft(document.name, schema_grammar(document.prepared()), document.explain)


def prove(draft: Draft, inquiry: Inquiry) -> tuple[Draft, int]:
    """Return what of a draft makes a grammar, and how many bytes that takes.

    Compiling it in this process takes as long once more.
    """
    for part in (*draft.parts, draft):
        answer = inquiry.answer(part.text, share=1 / 2)
        if answer.problem and draft.relaxed:
            return prove(draft.relaxed(inquiry.problem_of), inquiry)
        if answer.problem:
            raise BadInputError(part.explain(answer.problem, inquiry.problem_of))
    return draft, answer.num_bytes


def tools_problem(tools: Iterable[Tool], problem: str, problem_of: ProblemOf) -> str:
    with contextlib.suppress(CostlyGrammarError):
        for tool in tools:
            for pointer, schema in tool.json_values():
                if found := problem_of(schema_grammar(schema)):
                    return f"{tool.place}.parameters#{pointer}: {first_line(found)}"
    return describe("tools", problem)


def describe(name: str, problem: str, _problem_of: ProblemOf | None = None) -> str:
    return f"{name}: {first_line(problem)}"

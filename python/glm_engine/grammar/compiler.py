"""Schemas, regular expressions, choices and tools to grammars, each compiled once."""

import threading
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from glm_engine.dialogue.tags import THINK_END, Opening
from glm_engine.errors import BadInputError
from glm_engine.grammar.calls import CallRules, tools_of
from glm_engine.grammar.lark import alternatives, checked_text
from glm_engine.grammar.limits import PARSER_LIMITS, Limits, first_line
from glm_engine.grammar.matcher import Matcher
from glm_engine.grammar.proof import BusyProofError, CostlyGrammarError, Proof
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


class GrammarCompiler:
    """Makes grammars for one checkpoint. Every method may be called from any thread.

    `pool` is there for a caller that must not wait. spelling: a `CallSpelling`, needed for
    `tool_calls` alone.
    """

    def __init__(self, tokenizer, vocab_size, ending_ids, spelling=None, limits=None):
        from llguidance import LLParserLimits

        self.limits = limits or Limits()
        self.vocabulary = Vocabulary(tokenizer, vocab_size, ending_ids)
        self.spelling = spelling
        self.parser_limits = LLParserLimits(**PARSER_LIMITS)
        self.pool = ThreadPoolExecutor(self.limits.num_threads, "grammar")
        self.proof = Proof(self.limits)
        self.sharers = threading.BoundedSemaphore(self.limits.num_sharing)
        self.lock = threading.Lock()
        self.grammars = OrderedDict()

    def close(self):
        """Give up what is being compiled, and end the threads and the process."""
        self.proof.give_up()
        self.pool.shutdown(cancel_futures=True)
        self.proof.stop()

    def json_schema(self, schema, strict=True, name="schema"):
        """Return the grammar of the documents of a schema.

        Not strict: what llguidance cannot enforce of it is left out, else that is an error.
        """
        check_schema(name, schema, self.limits)
        text = schema_grammar(prepared(schema, strict))
        return self.compiled(name, text, partial(self.schema_problem, name, schema, strict))

    def json_object(self):
        """Return the grammar of any JSON object."""
        return self.json_schema(ANY_OBJECT)

    def regex(self, pattern, name="regex"):
        """Return the grammar of the texts that a regular expression matches as a whole."""
        from llguidance import LLMatcher

        self.check_size(name, checked_text(name, pattern))
        return self.compiled(name, LLMatcher.grammar_from_regex(pattern), partial(describe, name))

    def choice(self, texts, name="choice"):
        """Return the grammar of a list of texts."""
        if not isinstance(texts, list) or not texts:
            raise BadInputError(f"{name}: expected a list of at least one text")
        for at, text in enumerate(texts):
            checked_text(f"{name}[{at}]", text)
        grammar = f"start: CHOICE\nCHOICE: {alternatives(texts)}\n"
        self.check_size(name, grammar)
        return self.compiled(name, grammar, partial(describe, name))

    def tool_calls(self, tools, name=None, at_least=1, at_most=None):
        """Return the grammar of calls of the tools, or of the one that is named.

        at_least: 0 lets any text come, before calls or without one.
        tools: the OpenAI list, `{"type": "function", "function": {"name", "parameters"}}`.
        """
        chosen = tools_of(tools, name, self.limits)
        text = self.call_rules().text(chosen, at_least, at_most)
        self.check_size("tools", text)
        return self.compiled("tools", text, partial(self.tools_problem, chosen))

    def calls_or_document(self, tools, schema, strict=True, name="schema", at_most=None):
        """Return the grammar of either calls of the tools or one document of a schema."""
        self.json_schema(schema, strict, name)
        chosen = tools_of(tools, None, self.limits)
        text = self.call_rules().text(chosen, 1, at_most, prepared(schema, strict))
        return self.compiled("tools", text, partial(self.tools_problem, chosen))

    def call_rules(self):
        if self.spelling is None:
            raise BadInputError("tools: the checkpoint's template spells no calls to enforce")
        return CallRules(self.spelling, self.vocabulary.tag)

    def check_size(self, name, text):
        size = len(text.encode("utf-8"))
        if size > self.limits.max_bytes:
            raise BadInputError(f"{name}: {size} bytes; at most {self.limits.max_bytes} are taken")

    def compiled(self, name, text, explain):
        """Return the grammar of a text, which is compiled once however many ask at a time.

        explain: turns the problem that llguidance states into a line that names its place.
        """
        with self.lock:
            known = self.grammars.get(text)
            found = self.grammars.setdefault(text, known or Future())
            self.grammars.move_to_end(text)
            while len(self.grammars) > self.limits.num_cached:
                self.grammars.popitem(last=False)
        if known is None:
            self.fulfil(found, name, text, explain)
        elif not found.done():
            self.wait_for(found)
        return found.result()

    def wait_for(self, found):
        """Wait while somebody else compiles; too many may not, lest they take all threads."""
        if not self.sharers.acquire(blocking=False):
            raise BusyProofError(f"{self.limits.num_sharing} wait for grammars of others")
        try:
            wait([found])
        finally:
            self.sharers.release()

    def fulfil(self, found, name, text, explain):
        """Compile a text for all who wait for it; a failure is not kept for later ones."""
        try:
            found.set_result(self.compile(name, text, explain))
        except BaseException as error:
            with self.lock:
                if self.grammars.get(text) is found:
                    del self.grammars[text]
            found.set_exception(error)

    def compile(self, name, text, explain):
        from llguidance import LLMatcher

        try:
            problem = self.proof.problem_of(text)
            explained = explain(problem) if problem else ""
        except CostlyGrammarError as error:
            raise BadInputError(f"{name}: {error}") from error
        if explained:
            raise BadInputError(explained)
        state = LLMatcher(self.vocabulary.tokens, text, log_level=0, limits=self.parser_limits)
        if state.is_error():
            raise BadInputError(f"{name}: {first_line(state.get_error())}")
        if not Matcher(self.vocabulary, state).mask().any():
            raise BadInputError(f"{name}: no token of this model can begin it")
        return Grammar(self.vocabulary, state)

    def schema_problem(self, name, schema, strict, problem):
        def problem_of(part):
            return self.proof.problem_of(schema_grammar(prepared(part, strict)))

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

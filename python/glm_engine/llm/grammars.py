"""Grammars of this process, the last of them kept for prompts that ask for the same."""

from collections import OrderedDict

from glm_engine.text.conversation import Constraint
from glm_engine.text.grammar import Draft, Grammar, GrammarCompiler

MOST_KEPT = 64


class Grammars:
    """Compiles grammars, and keeps the last `MOST_KEPT` for others who ask for the same."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        self.compiler = compiler
        self.proved: OrderedDict[str, Draft] = OrderedDict()
        self.built: dict[str, Grammar] = {}

    def close(self) -> None:
        """End the processes that prove grammars."""
        self.compiler.close()

    def compiled(self, constraint: Constraint) -> Grammar:
        """Return the grammar of a constraint; BadInputError where there is none."""
        draw = getattr(self.compiler, constraint.method)
        draft: Draft = draw(*constraint.arguments, **constraint.options)
        kept = self.built.get(draft.text)
        if kept is not None and kept.is_fresh:
            return kept
        if draft.text not in self.proved:
            self.proved[draft.text], _ = self.compiler.prove(draft)
        while len(self.proved) > MOST_KEPT:
            text, _ = self.proved.popitem(last=False)
            self.built.pop(text, None)
        grammar: Grammar = self.compiler.build(self.proved[draft.text])
        self.built[draft.text] = grammar
        return grammar

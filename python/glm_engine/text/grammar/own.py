"""Grammars that clients write themselves, in Lark's syntax or in the EBNF of llama.cpp."""

from glm_engine.core.errors import BadInputError
from glm_engine.text.grammar.cost_limits import first_line
from glm_engine.text.grammar.lark import checked_text
from glm_engine.text.grammar.proof import ProblemOf

DEFINES = "::="
MAX_EBNF_RULES = 512
MAX_EBNF_CHARACTERS = 32_768


def as_lark(name: str, text: object) -> str:
    """Return a grammar in Lark's syntax; EBNF is converted slowly, and so bounded more tightly."""
    from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax

    checked = checked_text(name, text)
    if is_lark_syntax(checked) or DEFINES not in checked:
        return checked
    num_rules = checked.count(DEFINES)
    if num_rules > MAX_EBNF_RULES or len(checked) > MAX_EBNF_CHARACTERS:
        limits = f"{MAX_EBNF_RULES} rules and {MAX_EBNF_CHARACTERS} characters"
        raise BadInputError(
            f"{name}: the EBNF grammar has {num_rules} rules and {len(checked)} characters; "
            f"the limits are {limits}"
        )
    try:
        return gbnf_to_lark(checked)
    except RecursionError as error:
        raise BadInputError(f"{name}: groups are nested too deeply") from error
    except Exception as error:
        raise BadInputError(f"{name}: {error}") from error


def grammar_problem(name: str, problem: str, _problem_of: ProblemOf | None = None) -> str:
    """Return what is wrong, behind the line and column that llguidance names first."""
    place, stated = problem.strip().partition("\n")[0], first_line(problem)
    is_placed = place.removeprefix("at ")[:1].isdigit()
    return f"{name}: {place} {stated}" if is_placed and stated not in place else f"{name}: {stated}"

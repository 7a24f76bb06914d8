"""How long a thought may be: budgets that requests state, and those that an effort stands for."""

from glm_engine.core.requests import ThoughtLimit
from glm_engine.server.errors import ApiError
from glm_engine.text.dialogue import Opening
from glm_engine.text.dialogue.tags import THINK, THINK_END

EFFORT_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192}
UNLIMITED = -1


def stated_budgets(fields):
    """Return the budgets that a request states, by their fields."""
    names = ("thinking_budget", "thinking_token_budget")
    found = {name: getattr(fields, name, None) for name in names}
    found["thinking.budget_tokens"] = fields.thinking and fields.thinking.budget_tokens
    return {name: one for name, one in found.items() if one not in (None, UNLIMITED)}


def thought_limit(service, fields, opening, effort=None, continues_turn=False):
    """Return the limit of a thought, None where it has none; of several budgets the least counts.

    The token of the tag that templates write ends the thought.
    """
    stated = stated_budgets(fields)
    budget = min(stated.values(), default=EFFORT_BUDGETS.get(effort))
    is_open = opening is Opening.THOUGHT
    if budget is None or (continues_turn and not is_open):
        return None
    end = service.tokenizer.id_of(THINK_END)
    if end is None:
        return refuse_budgets(stated)
    begin = service.tokenizer.id_of(THINK)
    return ThoughtLimit(budget, end, -1 if begin is None else begin, is_open)


def refuse_budgets(stated):
    """Refuse budgets that were stated, where no token ends a thought; efforts have none then."""
    for name in stated:
        message = f"{name}: not supported, because the tokenizer has no {THINK_END} token"
        raise ApiError(400, message, name)

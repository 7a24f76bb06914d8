"""How a checkpoint's chat template spells tool calls."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from glm_engine.core.errors import BadInputError
from glm_engine.text.dialogue.tags import (
    ARG_KEY,
    ARG_KEY_END,
    ARG_VALUE,
    ARG_VALUE_END,
    TOOL_CALL,
    TOOL_CALL_END,
)
from glm_engine.text.template import ChatTemplate

CALLS: list[dict[str, object]] = [
    {"name": "first", "arguments": {"one": "1st", "two": "2nd"}},
    {"name": "second", "arguments": {}},
]
MESSAGES: list[Mapping[str, object]] = [
    {"role": "user", "content": "call"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": call["name"], "type": "function", "function": call} for call in CALLS
        ],
    },
]


def pair_pattern(key: str, value: str) -> str:
    return f"{ARG_KEY}{key}{ARG_KEY_END}(\\s*){ARG_VALUE}{value}{ARG_VALUE_END}(\\s*)"


PATTERN = re.compile(
    f"(\\s*){TOOL_CALL}first(\\s*){pair_pattern('one', '1st')}{pair_pattern('two', '2nd')}"
    f"{TOOL_CALL_END}(\\s*){TOOL_CALL}second(\\s*){TOOL_CALL_END}"
)


@dataclass(frozen=True)
class CallSpelling:
    """The white space of a call: GLM-4.5 writes newlines, GLM-4.7 nothing."""

    before_first: str = ""
    before_pair: str = ""
    before_value: str = ""
    before_end: str = ""
    between_calls: str = ""

    @classmethod
    def of_template(cls, template: ChatTemplate) -> Self:
        """Read the spelling from two calls as the template renders them."""
        text = template.render(MESSAGES, add_generation_prompt=False)
        match = PATTERN.search(text)
        spaces = match.groups() if match else ()
        if not match or spaces[1] != spaces[3] or spaces[2] != spaces[4] or spaces[5] != spaces[7]:
            raise BadInputError(
                f"{template.source}: cannot enforce tool calls: the template writes them "
                "in neither the GLM-4.5 nor the GLM-4.7 format"
            )
        return cls(spaces[0], spaces[1], spaces[2], spaces[5], spaces[6])


def spelling_of(template: ChatTemplate | None) -> CallSpelling | None:
    """Return how a template spells tool calls; None where there is none or it spells none."""
    if template is None:
        return None
    try:
        return CallSpelling.of_template(template)
    except BadInputError:
        return None

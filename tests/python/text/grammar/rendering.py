"""Calls as text, and back."""

import json

from glm_engine.text.dialogue import CallArguments, CallBegin, CallEnd, DialogueParser
from glm_engine.text.grammar import CallSpelling


def calls_of(text: str, tools: list[dict]) -> list[tuple[str, dict]]:
    """The calls that the server's parser reads, each ended, and nothing beside them."""
    parser = DialogueParser(in_reasoning=False, tools=tools)
    deltas = [*parser.push(text), *parser.finish()]
    names, arguments, num_ended = [], {}, 0
    for delta in deltas:
        assert isinstance(delta, (CallBegin, CallArguments, CallEnd)), delta
        if isinstance(delta, CallBegin):
            names.append(delta.name)
        elif isinstance(delta, CallArguments):
            arguments[delta.index] = arguments.get(delta.index, "") + delta.text
        else:
            num_ended += 1
    assert num_ended == len(names)
    return [(name, json.loads(arguments[at])) for at, name in enumerate(names)]


def written(space: CallSpelling, name: str, arguments: dict) -> str:
    pairs = "".join(
        f"{space.before_pair}<arg_key>{key}</arg_key>{space.before_value}<arg_value>"
        f"{value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}</arg_value>"
        for key, value in arguments.items()
    )
    return f"<tool_call>{name}{pairs}{space.before_end}</tool_call>"

"""Deltas put together again, however they were cut."""

from glm_engine.text.dialogue import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    DialogueParser,
    Reasoning,
)


def folded(deltas):
    """Deltas → [kind, text] and ["call", name, arguments, is_whole], neighbours joined."""
    parts = []
    for delta in deltas:
        match delta:
            case Reasoning(text) | Content(text):
                assert text
                kind = type(delta).__name__.lower()
                if parts and parts[-1][0] == kind:
                    parts[-1][1] += text
                else:
                    parts.append([kind, text])
            case CallBegin(index, name):
                assert index == len([part for part in parts if part[0] == "call"])
                parts.append(["call", name, "", False])
            case CallArguments(index, text):
                assert text
                assert calls(parts)[index] is parts[-1]
                assert not parts[-1][3]
                parts[-1][2] += text
            case CallEnd(index):
                assert calls(parts)[index] is parts[-1]
                parts[-1][3] = True
    return parts


def calls(parts):
    return [part for part in parts if part[0] == "call"]


def parsed(pieces, in_reasoning=False, is_cut=False, **options):
    """Push the pieces one by one; returns all deltas."""
    parser = DialogueParser(in_reasoning, **options)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    return deltas + parser.finish(is_cut)


def tool(name, **properties):
    """A tool whose arguments have these types, or these schemas."""
    schemas = {
        key: {"type": value} if isinstance(value, str) else value
        for key, value in properties.items()
    }
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": schemas}},
    }

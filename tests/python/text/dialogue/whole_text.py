"""The same grammar once more, over whole texts with regular expressions: a slow oracle.

It reads calls that are whole, or lack `</tool_call>` alone at the end of the turn. What else looks
like a call is `DamagedError`; of that `damage.py` knows what was meant.
"""

import json
import re

LAYOUT = r"(?:[ \t\r\n]|\\n)*+"
TAG = "</?(?:tool_call|arg_key|arg_value)>"
PIECE = r"</?(?:tool_c|arg_[kv])[a-z]*(?:[ \t\r\n]|\\n){0,8}+"
HEAD = re.compile(f"(?:<tool_call>{LAYOUT})+([^< \t\r\n]*+)({LAYOUT})")
PAIR = re.compile(
    f"<arg_key>((?:(?!{TAG}).)*)</arg_key>{LAYOUT}(<arg_value>)?((?:(?!{TAG}).)*)</arg_value>{LAYOUT}",
    re.DOTALL,
)
PIECE_BEFORE_TAG = re.compile(f"{PIECE}(?={TAG})")
LIKE_A_PIECE = re.compile(r"[^ ]{0,10}>|<arg")
LAST_END = re.compile(r"(?:</tool_call>|</arg_value>|</arg_key>)?")
BEGINNINGS = "|".join("</tool_call>"[:size] for size in range(11, -1, -1))
END_PIECE = re.compile(rf"(?:{BEGINNINGS})\\?[ \t\r\n]*")


class DamagedError(Exception):
    """What looks like a call is damaged; `args` are the parts before it."""


def stripped(text):
    return text.strip(" \t\r\n")


def parse(text, in_reasoning, is_string, is_cut=False):
    """Text → parts as `folded` gives them, with a dictionary in place of arguments' text."""
    parts = []
    reasoning, text = thought(text.lstrip(" \t\r\n"), in_reasoning, is_string, is_cut)
    if reasoning:
        parts.append(["reasoning", reasoning])
    gap, at = "", 0
    while match := HEAD.search(text, at):
        at = match.end()
        try:
            found = call(text, match, is_string, is_cut)
        except DamagedError:
            raise DamagedError(parts) from None
        if found:
            gap = add_content(parts, gap, text[: match.start()])
            parts.append(["call", found[0], found[1], True])
            for layout in found[2]:
                gap += layout if has_content(parts) else layout.lstrip(" \t\r\n")
            text, at = found[3], 0
    spaces = add_content(parts, gap, text)
    if parts and parts[-1][0] == "content":
        parts[-1][1] += spaces
    return parts


def call(text, head, is_offered, is_cut):
    """Return name, arguments, layout behind and the rest; None where it only looks like a call."""
    name = re.sub(r"(\\n)+\Z", "", head[1])
    rest = text[head.end() :]
    if not name or len(head[1]) > 256:
        return None
    if not re.match(f"(?:{PIECE})?(?:<arg_key>|</tool_call>)", rest) or ">" in name:
        if is_offered and head[1].startswith("f"):
            raise DamagedError
        return None
    arguments, rest = pairs(rest, is_offered, is_cut)
    layouts = []
    end = True
    while end:
        layout, rest = split_layout(rest)
        layouts.append(layout)
        end = LAST_END.match(rest)[0]
        rest = rest.removeprefix(end)
    return name, arguments, layouts, rest


def has_content(parts):
    return any(part[0] == "content" for part in parts)


def split_layout(text):
    """Return the white space that text begins with, newlines spelled out among it, and the rest."""
    end = re.compile(LAYOUT).match(text).end()
    return text[:end], text[end:]


def add_content(parts, gap, text):
    """Add text but for the white space at its end; return what stands beside the next call."""
    body = text.rstrip(" \t\r\n")
    if not body:
        return gap + text
    parts.append(["content", gap + body])
    return text[len(body) :]


def thought(text, in_reasoning, is_string, is_cut):
    for tag, opens in (("<think>", True), ("</think>", False)):
        if text.startswith(tag):
            in_reasoning, text = opens, text[len(tag) :].lstrip(" \t\r\n")
            break
    if not in_reasoning:
        return "", text
    reasoning, end, answer = text.partition("</think>")
    if end:
        return stripped(reasoning), answer.lstrip(" \t\r\n")
    begin = len(text) if is_cut else calls_at_the_end(text, is_string)
    return (stripped(text[:begin]), text[begin:]) if begin < len(text) else (text, "")


def calls_at_the_end(text, is_string):
    """Return where the first call begins, if nothing but calls comes after; else the end."""
    at = 0
    while match := HEAD.search(text, at):
        begin, at = match.start(), match.end()
        if found := call(text, match, is_string, is_cut=False):
            while found and found[3]:
                match = HEAD.match(found[3])
                found = call(found[3], match, is_string, is_cut=False) if match else None
            return begin if found else len(text)
    return len(text)


def pairs(text, is_string, is_cut):
    """Return the arguments of a call that is not damaged, and the text after it."""
    arguments = {}
    while not text.startswith("</tool_call>"):
        pair = PAIR.match(text)
        if not pair and arguments and not is_cut and END_PIECE.fullmatch(text):
            return arguments, ""
        if not pair or PIECE_BEFORE_TAG.search(text):
            raise DamagedError
        if not pair[2] and LIKE_A_PIECE.match(pair[3]):
            raise DamagedError
        arguments[pair[1]] = typed(pair[3], is_string)
        text = text[pair.end() :]
    return arguments, text.removeprefix("</tool_call>")


def typed(text, is_string):
    if is_string:
        return text
    try:
        value = json.loads(stripped(text), parse_constant=refuse)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def refuse(name):
    raise ValueError(f"{name} is not valid JSON")

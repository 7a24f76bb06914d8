"""The same grammar once more, over whole texts with regular expressions: a slow oracle."""

import json
import re

WS = "[ \t\r\n]*"
LAYOUT = r"(?:[ \t\r\n]|\\n)*+"
CALL = re.compile(
    f"<tool_call>{LAYOUT}(?=[^< \t\r\n]{{1,256}}+[< \t\r\n])([^< \t\r\n]+?)"
    f"{LAYOUT}(?=<arg_key>|</tool_call>)"
)
VALUE = re.compile(f"(.*?)</arg_value>{LAYOUT}(?=<arg_key>|</tool_call>)", re.DOTALL)


def beginnings(*tags):
    """A pattern of what may be the beginning of a tag, or of a newline that is spelled out."""
    parts = [tag[:size] for tag in tags for size in range(len(tag) - 1, 0, -1)]
    return "(?:" + "|".join(map(re.escape, [*parts, "\\"])) + r")?\Z"


KEY = re.compile(
    f"<arg_key>(.*?)</arg_key>{LAYOUT}(?!{beginnings('<arg_value>')})(?:<arg_value>)?", re.DOTALL
)
CLOSED_AT_THE_END = re.compile(
    f"(.*?)</arg_value>{LAYOUT}{beginnings('<arg_key>', '</tool_call>')}", re.DOTALL
)


def stripped(text):
    return text.strip(" \t\r\n")


def parse(text, in_reasoning, is_string, is_cut=False):
    """Text → parts as `folded` gives them, with a dictionary in place of arguments' text."""
    parts = []
    reasoning, text = thought(text.lstrip(" \t\r\n"), in_reasoning, is_cut)
    if reasoning:
        parts.append(["reasoning", reasoning])
    gap = ""
    while match := CALL.search(text):
        gap = add_content(parts, gap, text[: match.start()])
        arguments, rest = pairs(text[match.end() :], is_string)
        parts.append(["call", match[1], arguments, rest is not None])
        if rest is None:
            return parts
        layout, text = split_layout(rest)
        gap += layout if has_content(parts) else layout.lstrip(" \t\r\n")
    spaces = add_content(parts, gap, text)
    if parts and parts[-1][0] == "content":
        parts[-1][1] += spaces
    return parts


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


def thought(text, in_reasoning, is_cut):
    for tag, opens in (("<think>", True), ("</think>", False)):
        if text.startswith(tag):
            in_reasoning, text = opens, text[len(tag) :].lstrip(" \t\r\n")
            break
    if not in_reasoning:
        return "", text
    reasoning, end, answer = text.partition("</think>")
    if end:
        return stripped(reasoning), answer.lstrip(" \t\r\n")
    begin = len(text) if is_cut else calls_at_the_end(text)
    return (stripped(text[:begin]), text[begin:]) if begin < len(text) else (text, "")


def calls_at_the_end(text):
    """Return where the first call begins, if nothing but calls comes after; else the end."""
    found = CALL.search(text)
    at = found.start() if found else len(text)
    while match := CALL.match(text, at):
        _, rest = pairs(text[match.end() :], is_string=False)
        if rest is None:
            return len(text)
        at = len(text) - len(split_layout(rest)[1])
    return found.start() if found and at == len(text) else len(text)


def pairs(text, is_string):
    """Return the arguments, and the text after the call: None where the call has no end."""
    arguments = {}
    while not text.startswith("</tool_call>"):
        key = KEY.match(text)
        if not key:
            return arguments, None
        text = text[key.end() :]
        value = VALUE.match(text)
        if not value:
            closed = CLOSED_AT_THE_END.match(text)
            arguments[key[1]] = typed(closed[1], is_string) if closed else text
            return arguments, None
        arguments[key[1]] = typed(value[1], is_string)
        text = text[value.end() :]
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
    raise ValueError(f"{name} is not JSON")

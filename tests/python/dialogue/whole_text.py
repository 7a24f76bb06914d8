"""The same grammar once more, over whole texts with regular expressions: a slow oracle."""

import json
import re

WS = "[ \t\r\n]*"
CALL = re.compile(
    f"{WS}<tool_call>{WS}([^< \t\r\n]{{1,256}}){WS}(?=<arg_key>|</tool_call>)", re.DOTALL
)
KEY = re.compile(f"<arg_key>(.*?)</arg_key>{WS}<arg_value>", re.DOTALL)
VALUE = re.compile(f"(.*?)</arg_value>{WS}(?=<arg_key>|</tool_call>)", re.DOTALL)
FOLLOWERS = ("<arg_key>", "</tool_call>")
BEGINNINGS = "|".join(
    re.escape(tag[:size]) for tag in FOLLOWERS for size in range(len(tag) - 1, 0, -1)
)
CLOSED_AT_THE_END = re.compile(rf"(.*?)</arg_value>{WS}(?:{BEGINNINGS})?\Z", re.DOTALL)


def stripped(text):
    return text.strip(" \t\r\n")


def parse(text, in_reasoning, is_string, is_cut=False):
    """Text → parts as `folded` gives them, with a dictionary in place of arguments' text."""
    parts = []
    reasoning, text = thought(text.lstrip(" \t\r\n"), in_reasoning, is_cut)
    if reasoning:
        parts.append(["reasoning", reasoning])
    while match := CALL.search(text):
        if match.start() > 0:
            parts.append(["content", text[: match.start()]])
        arguments, rest = pairs(text[match.end() :], is_string)
        parts.append(["call", match[1], arguments, rest is not None])
        if rest is None:
            return parts
        text = rest.lstrip(" \t\r\n")
    return [*parts, ["content", text]] if text else parts


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
    """Return where the calls begin after which nothing comes, the end where there are none."""
    at = 0
    while match := CALL.search(text, at):
        begin = match.start()
        while match:
            _, rest = pairs(text[match.end() :], is_string=False)
            if rest is None:
                return len(text)
            at = len(text) - len(rest)
            match = CALL.match(text, at)
        if not stripped(text[at:]):
            return begin
    return len(text)


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

"""How vLLM, SGLang and llama.cpp state speculative decoding, and what --speculate states for it."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from glm_engine.core.abi import MAX_DRAFT_TOKENS

Value = TypeVar("Value")
LOOKUP, LAYER = "lookup", "mtp"
VLLM = {
    "mtp": LAYER,
    "glm4_moe_mtp": LAYER,
    "deepseek_mtp": LAYER,
    "ngram": LOOKUP,
    "ngram_gpu": LOOKUP,
}
SGLANG = {"NEXTN": LAYER, "EAGLE": LAYER, "NGRAM": LOOKUP}
LLAMA_CPP = {
    "draft-mtp": LAYER,
    **{f"ngram-{one}": LOOKUP for one in ("simple", "map-k", "map-k4v", "mod", "cache")},
}
METHOD, NUMBER = "method", "num_speculative_tokens"
NO_MODELS = (
    "glm has no draft models: use --speculate mtp (the checkpoint's prediction layer),"
    " lookup:N (prompt lookup) or auto"
)
WHOLE = re.compile(r"[1-9]\d{0,8}")
STEPS, BRANCHES, CHECKED = (
    "--speculative-num-steps",
    "--speculative-eagle-topk",
    "--speculative-num-draft-tokens",
)
DRAFTED = "--spec-draft-n-max"


@dataclass(frozen=True)
class Stated:
    """What --speculate states, None: the default stays; and what is said of the rest."""

    value: str | None
    remarks: tuple[str, ...] = ()


def of_vllm(text: str, more: dict[str, str]) -> Stated:
    """Return what a JSON object states; `more` are its fields that have options of their own."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{text!r} is not a JSON object; use --speculate lookup:N, mtp or auto")
    return of_fields(with_options(found, more))


def of_vllm_method(text: str, more: dict[str, str]) -> Stated:
    return of_fields(with_options({METHOD: text}, more))


def with_options(fields: dict[str, Any], more: dict[str, str]) -> dict[str, Any]:
    """Return the fields and those of options: --spec-tokens or --speculative-config.FIELD."""
    for name, text in more.items():
        field = name.partition(".")[2] or NUMBER
        fields = {**fields, field: int(text) if WHOLE.fullmatch(text) else text}
    return fields


def of_fields(fields: dict[str, Any]) -> Stated:
    method, number = fields.get(METHOD), fields.get(NUMBER)
    way = VLLM.get(method) if isinstance(method, str) else None
    if way is None:
        raise ValueError(f"method is {shown(method)}; expected 'mtp' or 'ngram'; {NO_MODELS}")
    if not (way == LAYER and number is None) and (type(number) is not int or number < 1):
        expected = "1" if way == LAYER else f"1 to {MAX_DRAFT_TOKENS}"
        raise ValueError(f"{NUMBER} is {shown(number)}; expected {expected}")
    unread = [name for name, value in fields.items() if value is not None]
    unread = [name for name in unread if name not in (METHOD, NUMBER)]
    return stated(way, {NUMBER: number or 1}, unread)


def of_sglang(text: str, more: dict[str, str]) -> Stated:
    """Return what --speculative-algorithm states; the number of tokens checked counts one more."""
    way = SGLANG.get(text.upper())
    if way is None:
        raise ValueError(f"{text!r} is not one of {', '.join(SGLANG)}; {NO_MODELS}")
    numbers = {name: whole(name, one) for name, one in more.items()}
    if way == LOOKUP:
        return stated(way, chosen(numbers, CHECKED), chosen(numbers, STEPS, BRANCHES))
    is_one = all(number <= 1 + (name == CHECKED) for name, number in numbers.items())
    return stated(way, {} if is_one else numbers)


def of_llama_cpp(text: str, more: dict[str, str]) -> Stated:
    """Return what --spec-type states: one type or several with commas between."""
    types = [one for one in text.split(",") if one != "none"]
    wrong = [one for one in types if one not in LLAMA_CPP]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not none, draft-mtp or an ngram type; {NO_MODELS}")
    ways = {LLAMA_CPP[one] for one in types}
    if not ways:
        return Stated(None)
    if len(ways) > 1:
        return Stated("auto", no_effect(more))
    way = ways.pop()
    read = chosen(more, DRAFTED) if way == LAYER else {}
    numbers = {name: whole(name, one) for name, one in read.items()}
    return stated(way, numbers, [name for name in more if name not in read])


def stated(way: str, numbers: dict[str, int], unread: Iterable[str] = ()) -> Stated:
    """Return a method with as many draft tokens as there can be of the numbers stated."""
    most = 1 if way == LAYER else MAX_DRAFT_TOKENS
    asked = max(numbers.values(), default=most)
    value = LAYER if way == LAYER else f"{LOOKUP}:{min(asked, most)}"
    remarks = no_effect(unread)
    if asked > most:
        names = listed([f"{name} {number}" for name, number in numbers.items()])
        reason = "1 draft token, because the prediction layer drafts no more"
        reason = reason if way == LAYER else f"{most} draft tokens, the maximum"
        remarks = (f"{names} {'becomes' if len(numbers) == 1 else 'become'} {reason}", *remarks)
    return Stated(value, remarks)


def no_effect(names: Iterable[str]) -> tuple[str, ...]:
    """Return the remark that names have no effect; none without names."""
    names = list(names)
    return (f"{listed(names)} {'has' if len(names) == 1 else 'have'} no effect",) if names else ()


def listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def chosen(numbers: Mapping[str, Value], *names: str) -> dict[str, Value]:
    return {name: numbers[name] for name in names if name in numbers}


def whole(name: str, text: str) -> int:
    if not WHOLE.fullmatch(text):
        raise ValueError(f"{name} is {text!r}; expected a number from 1")
    return int(text)


def shown(value: object) -> str:
    return "missing" if value is None else repr(value)

"""The engine's options as Python callers state them."""

from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

import click

from glm_engine.cli.option_types import KvDtype, MemoryLimit, Speculate
from glm_engine.cli.options import (
    DEVICES,
    ENGINE,
    KV_DTYPES,
    LAYOUTS,
    make_engine_options,
    make_engine_values,
)
from glm_engine.core.checks import Check, Whole, flag, unknown_name, wrong
from glm_engine.core.engine import EngineOptions
from glm_engine.core.errors import BadInputError

COUNT = Whole(0, 2**31 - 1)
POSITIVE = Whole(1, 2**31 - 1)
OUR_NAMES = {"max_model_len": "max_seq", "max_num_seqs": "max_batch"}


class EngineKeywords(TypedDict, total=False):
    """Options of the engine; `glm help engine` states what each means and its default.

    world_size: how many GPUs to split the model across; 0 and auto mean as few as can hold it.
    max_model_len: at most how many tokens a prompt and its answer have together.
    max_num_seqs: at most how many answers run at once.
    speculate: off, lookup:N, mtp or auto; it changes no answer.
    memory_limit: bytes, a text such as 80GB, or a fraction of the free memory such as 0.9.
    step_budget_ms: milliseconds.
    """

    device: Literal["auto", "cpu", "cuda", "futhark"]
    world_size: int | Literal["auto"]
    max_model_len: int | None
    max_num_seqs: int | None
    speculate: str | None
    memory_limit: int | float | str | None
    kv_dtype: str | None
    expert_layout: Literal["tensor_parallel", "expert_parallel"] | None
    num_threads: int | None
    page_size: int | None
    num_pages: int | None
    max_step_tokens: int | None
    prefill_chunk: int | None
    step_budget_ms: int | None
    prefix_cache: bool | None
    graphs: bool | None
    plan_ahead: bool | None
    check_operations: bool | None


def one_of(*names: str) -> Check:
    """Return the check of a value that is one of a few names."""

    def check(place: str, value: object) -> None:
        if value not in names:
            raise wrong(place, f"one of {', '.join(names)}", value)

    return check


def world_size(place: str, value: object) -> None:
    """Refuse what is neither a number of GPUs nor auto."""
    if value != "auto":
        COUNT(place, value)


CHECKS: dict[str, Check] = {
    "device": one_of(*DEVICES),
    "world_size": world_size,
    "max_model_len": COUNT,
    "max_num_seqs": COUNT,
    "expert_layout": one_of(*LAYOUTS),
    "num_threads": COUNT,
    "page_size": POSITIVE,
    "num_pages": COUNT,
    "max_step_tokens": COUNT,
    "prefill_chunk": COUNT,
    "step_budget_ms": COUNT,
    "prefix_cache": flag,
    "graphs": flag,
    "plan_ahead": flag,
    "check_operations": flag,
}
TEXTS: dict[str, Callable[[], click.ParamType[object]]] = {
    "speculate": Speculate,
    "memory_limit": MemoryLimit,
    "kv_dtype": lambda: KvDtype(list(KV_DTYPES)),
}


def engine_options(folder: str, stated: Mapping[str, object]) -> EngineOptions:
    """Return the engine's options; BadInputError for an unknown one or a wrong value."""
    values: dict[str, object] = dict.fromkeys(ENGINE)
    for name, value in stated.items():
        if name not in EngineKeywords.__annotations__:
            raise unknown_name("LLM", name, EngineKeywords.__annotations__)
        if value is not None:
            values[OUR_NAMES.get(name, name)] = read(name, value)
    options: EngineOptions = make_engine_options(folder, make_engine_values(values))
    return options


def read(name: str, value: object) -> object:
    """Return an option's value as the engine's options take it."""
    if name not in TEXTS:
        CHECKS[name](f"LLM: {name}", value)
        return 0 if value == "auto" and name == "world_size" else value
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise wrong(f"LLM: {name}", "a string or a number", value)
    text = value if isinstance(value, int) and name == "memory_limit" else str(value)
    try:
        return TEXTS[name]().convert(text, None, None)
    except click.BadParameter as error:
        raise BadInputError(f"LLM: {name}: {error.message}") from error

"""Messages of the engine in the words of the command line."""

import re

from glm_engine.core import layout
from glm_engine.core.errors import EngineError

OPTIONS = {
    "world_size": "--world-size",
    "expert_layout": "--expert-layout",
    "num_threads": "--threads",
    "max_batch": "--max-batch",
    "max_seq": "--max-seq",
    "page_size": "--page-size",
    "num_pages": "--num-pages",
    "max_step_tokens": "--max-step-tokens",
    "prefill_chunk": "--prefill-chunk",
    "step_budget_ms": "--step-budget",
    "kv_dtype": "--kv-dtype",
    "memory_limit_bytes": "--memory-limit",
    "memory_limit_percent": "--memory-limit",
    "prefix_cache": "--prefix-cache",
    "plan_ahead": "--plan-ahead",
    "speculate": "--speculate",
    "acceptance_length": "--acceptance-length",
    "check_operations": "--check-operations",
    "device_memory_bytes": "--device-memory",
    "num_layers": "--layers",
    "max_queue": "--max-queue",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "top_k": "--top-k",
    "repetition_penalty": "--repetition-penalty",
    "frequency_penalty": "--frequency-penalty",
    "presence_penalty": "--presence-penalty",
    "num_logprobs": "--logprobs",
}
NAME = re.compile(
    rf"(?<![\w/.-])({'|'.join(OPTIONS)})(?![\w/-])|(?<=\buse )device(?= (?:cpu|cuda|futhark)\b)"
)
BUILD = re.compile(
    r"library for device (?P<kind>\w+): .*(?P<advice>; in a source checkout, [^`]*`[^`]*`)"
)
GPU_KINDS = ("cuda", "futhark")
INSTALL_CUDA = "install the wheel whose version does not end in +cpu"
REINSTALL = "this installation is incomplete; install the glm-engine wheel again"


def for_users(error: BaseException) -> str:
    """Return the text of an error; that of the engine names options."""
    return in_options(str(error)) if isinstance(error, EngineError) else str(error)


def in_options(text: str) -> str:
    """Return a message of the engine with the options' names in place of the engine's."""
    named = NAME.sub(lambda found: OPTIONS.get(found[0], f"--{found[0]}"), text)
    if layout.IS_WHEEL and (found := BUILD.search(named)):
        return named.replace(found["advice"], advice_of_wheel(found["kind"]))
    return named


def advice_of_wheel(kind: str) -> str:
    """Return what to do where a wheel cannot open the library of a device."""
    from glm_engine.core.libraries import find_backend_library

    if find_backend_library(kind) is not None:
        return ""
    if kind in GPU_KINDS:
        return f". This wheel has no CUDA support; {INSTALL_CUDA}"
    return f". {REINSTALL[0].upper()}{REINSTALL[1:]}"

"""What the server says of itself: its /metrics before and after, and the difference."""

import math
from collections.abc import Mapping

from glm_engine.core import acceptance
from glm_engine.core.errors import GlmError
from glm_engine.load.fields import ServerFigures
from glm_engine.load.http_client import OK, Address
from glm_engine.load.target import ask_server

COUNTERS: dict[str, str] = {
    "cpu_seconds": "process_cpu_seconds_total",
    "http_cpu_seconds": "glm_http_cpu_seconds_total",
    "generated_tokens": "glm_generated_tokens_total",
    "prompt_tokens": "glm_prompt_tokens_total",
    "cached_prompt_tokens": "glm_cached_prompt_tokens_total",
    "steps": "glm_steps_total",
    "preemptions": "glm_preemptions_total",
    "evictions": "glm_evictions_total",
    **{name: f"vllm:spec_decode_{name}_total" for name in acceptance.COUNTS},
}
MICRO = 1e-6


def read_counters(address: Address) -> dict[str, float]:
    """The server's counters by name; empty where no server or no /metrics answers."""
    from prometheus_client.parser import text_string_to_metric_families

    try:
        status, content = ask_server(address, "GET", "/metrics")
    except GlmError:
        return {}
    if status != OK:
        return {}
    totals: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(content.decode("utf-8", "replace")):
            for sample in family.samples:
                if sample.name in COUNTERS.values():
                    totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    except (ValueError, LookupError):
        return {}
    return {name: total for name, total in totals.items() if math.isfinite(total)}


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> ServerFigures | None:
    """What the counters grew by, CPU microseconds for each token, and the acceptance length.

    None where a counter shrank: another server answers there.

    `cpu_us_per_token` is the process's, `http_cpu_us_per_token` its thread's that speaks HTTP.
    """
    grown: ServerFigures = {
        name: after[key] - before[key] if after[key] >= before[key] else None
        for name, key in COUNTERS.items()
        if key in before and key in after
    }
    tokens = grown.get("generated_tokens")
    for name in ("cpu", "http_cpu"):
        seconds = grown.get(f"{name}_seconds")
        if tokens and seconds is not None:
            grown[f"{name}_us_per_token"] = seconds / tokens / MICRO
    return with_acceptance(grown) or None


def with_acceptance(figures: ServerFigures) -> ServerFigures:
    """Return figures of drafts with their mean acceptance length, others as they are."""
    found = [(name, figures.get(name)) for name in acceptance.COUNTS]
    counts: dict[str, float] = {name: value for name, value in found if value is not None}
    if len(counts) < len(acceptance.COUNTS):
        return figures
    return {**figures, "mean_acceptance_length": acceptance.acceptance_length(counts)}

"""The text of /metrics: the server's counts under its own names and under those of vLLM."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from glm_engine.server.http.metrics import batch_occupancy, kv_utilisation, running_requests

if TYPE_CHECKING:
    from glm_engine.core.reports import EngineInfo
    from glm_engine.server.app import Service
    from glm_engine.server.http.metrics import Metrics, SecondsHistogram


PREEMPTIONS = (
    "Requests preempted because the KV cache was full; a preempted request waits, then continues"
    " with the same tokens. If this rises, raise --memory-limit or lower --max-batch."
)
DRAFTS = (
    "Drafts checked in forward passes, each of one request. The mean acceptance length is 1 +"
    " accepted draft tokens / drafts."
)
TEXTS = {
    "glm_requests": "HTTP requests by endpoint and outcome.",
    "glm_http_cpu_seconds": "CPU time used by the HTTP thread, in seconds.",
    "glm_prompt_tokens": "Prompt tokens of requests that have started to generate.",
    "glm_cached_prompt_tokens": "Prompt tokens taken from the prefix cache.",
    "glm_generated_tokens": "Generated tokens.",
    "glm_steps": "Forward passes of the engine.",
    "glm_preemptions": PREEMPTIONS,
    "glm_evictions": "Pages evicted from the prefix cache.",
    "glm_late_masks": "Forward-pass rows wasted because their grammar mask came too late.",
    "glm_mask_wait_seconds": "Seconds that forward passes spent waiting for grammar masks.",
    "glm_drafts": DRAFTS,
    "glm_draft_tokens": "Draft tokens checked in forward passes.",
    "glm_accepted_draft_tokens": "Draft tokens accepted, by position in the draft.",
    "glm_requests_live": "Requests in the engine, running or waiting.",
    "glm_requests_waiting": "Requests waiting in the engine's queue.",
    "glm_requests_inside": "HTTP requests in progress.",
    "glm_open_streams": "Streaming answers being sent.",
    "glm_tasks": "Running asyncio tasks.",
    "glm_kv_utilisation": "Fraction of KV-cache pages in use by running requests, 0 to 1.",
    "glm_batch_occupancy": "Running requests as a fraction of the maximum batch size, 0 to 1.",
    "glm_draining": "1 while the server is shutting down, otherwise 0.",
    "glm_kv_pages": "KV-cache pages by state.",
    "glm_time_to_first_token_seconds": "Time from a request's arrival to its first token.",
    "glm_inter_token_seconds": "Time between consecutive tokens of an answer.",
    "glm_request_seconds": "Time from a request's arrival to the end of its answer.",
    "vllm:num_requests_running": "Requests in the current batch.",
    "vllm:num_requests_waiting": "Requests waiting in the engine's queue.",
    "vllm:kv_cache_usage_perc": "Fraction of KV-cache pages in use by running requests, 0 to 1.",
    "vllm:cache_config_info": "Page size and number of pages of the KV cache, as labels.",
    "vllm:prompt_tokens": "Prompt tokens of requests that have started to generate.",
    "vllm:prompt_tokens_cached": "Prompt tokens taken from the prefix cache.",
    "vllm:generation_tokens": "Generated tokens.",
    "vllm:num_preemptions": PREEMPTIONS,
    "vllm:prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "vllm:prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "vllm:spec_decode_num_drafts": DRAFTS,
    "vllm:spec_decode_num_draft_tokens": "Draft tokens checked in forward passes.",
    "vllm:spec_decode_num_accepted_tokens": "Draft tokens accepted.",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "Draft tokens accepted, by position in the"
    " draft.",
    "vllm:request_success": "Finished answers by finish reason.",
    "vllm:time_to_first_token_seconds": "Time from a request's arrival to its first token.",
    "vllm:inter_token_latency_seconds": "Time between consecutive tokens of an answer.",
    "vllm:request_time_per_output_token_seconds": "Mean time per token after the first.",
    "vllm:request_queue_time_seconds": "Time a request waited for its first forward pass.",
    "vllm:request_prefill_time_seconds": "Time from the first forward pass to the first token.",
    "vllm:request_decode_time_seconds": "Time from the first token to the last.",
    "vllm:e2e_request_latency_seconds": "Time from a request's arrival to the end of its answer.",
}
PAGE_STATES = ("free", "owned", "cached")
LABELS = ("model_name", "engine")
ENGINE = "0"
FINISHED_REASONS = ("stop", "length", "abort", "error")


def described(name: str) -> tuple[str, str]:
    """Return a metric's name and its text."""
    return name, TEXTS[name]


def counters(metrics: "Metrics", info: "EngineInfo") -> dict[str, float]:
    """Return the counters; called by the thread that speaks HTTP, whose CPU time is one."""
    return {
        "glm_http_cpu_seconds": time.thread_time(),
        "glm_prompt_tokens": metrics.prompt_tokens.total,
        "glm_cached_prompt_tokens": metrics.cached_tokens,
        "glm_generated_tokens": metrics.generated_tokens.total,
        "glm_steps": info["num_steps"],
        "glm_preemptions": info["num_preemptions"],
        "glm_evictions": info["num_evictions"],
        "glm_drafts": info["num_drafts"],
        "glm_draft_tokens": info["num_draft_tokens"],
        "glm_late_masks": info["num_late_masks"],
        "glm_mask_wait_seconds": info["mask_wait_ns"] / 1e9,
    }


def gauges(service: "Service", info: "EngineInfo") -> dict[str, float]:
    return {
        "glm_requests_live": info["live_requests"],
        "glm_requests_waiting": info["waiting_requests"],
        "glm_requests_inside": service.admission.num_inside,
        "glm_open_streams": len(service.streams),
        "glm_tasks": len(asyncio.all_tasks(service.bridge.loop)),
        "glm_kv_utilisation": kv_utilisation(info),
        "glm_batch_occupancy": batch_occupancy(info),
        "glm_draining": float(service.admission.is_draining),
    }


@dataclass(eq=False)
class ServiceCollector:
    """Reads the counts of a service when Prometheus asks."""

    service: "Service"

    def collect(self) -> Iterator[Metric]:
        metrics, info = self.service.metrics, self.service.engine.info()
        labels = ("endpoint", "outcome")
        requests = CounterMetricFamily(*described("glm_requests"), labels=labels)
        for labels, count in metrics.requests.items():
            requests.add_metric(labels, count)
        yield requests
        yield from families(CounterMetricFamily, counters(metrics, info))
        yield accepted_by_position("glm_accepted_draft_tokens", info)
        yield from families(GaugeMetricFamily, gauges(self.service, info))
        yield pages_of(info)
        yield from histogram_families(histograms(metrics))
        yield from vllm_families(self.service, info)


def pages_of(info: "EngineInfo") -> GaugeMetricFamily:
    pages = GaugeMetricFamily(*described("glm_kv_pages"), labels=("state",))
    counts = cast("dict[str, int]", info)
    for state in PAGE_STATES:
        pages.add_metric((state,), counts[f"{state}_pages"])
    return pages


def histograms(metrics: "Metrics") -> "dict[str, SecondsHistogram]":
    return {
        "glm_time_to_first_token_seconds": metrics.time_to_first_token,
        "glm_inter_token_seconds": metrics.inter_token,
        "glm_request_seconds": metrics.request_seconds,
    }


def families(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    values: Mapping[str, float],
    names: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Iterator[Metric]:
    """Yield a metric for each value, with the labels `labels` of these names."""
    for name, value in values.items():
        family = kind(*described(name), labels=names)
        family.add_metric(labels, value)
        yield family


def histogram_families(
    histograms: "Mapping[str, SecondsHistogram]",
    names: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> Iterator[Metric]:
    for name, histogram in histograms.items():
        family = HistogramMetricFamily(*described(name), labels=names)
        family.add_metric(labels, histogram.cumulative(), histogram.sum)
        yield family


def metrics_page(service: "Service") -> Callable[[], bytes]:
    """Return what makes the text of /metrics: a service's metrics, and those of its process."""
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service))
    for collect in (ProcessCollector, PlatformCollector, GCCollector):
        collect(registry=registry)
    return partial(generate_latest, registry)


def vllm_families(service: "Service", info: "EngineInfo") -> Iterator[Metric]:
    """Yield the metrics of a service, whose figures `Metrics` and `Engine.info` hold."""
    labels, metrics = (service.model_name, ENGINE), service.metrics
    yield from families(GaugeMetricFamily, vllm_gauges(info), LABELS, labels)
    yield vllm_cache_config(info, labels)
    yield from families(CounterMetricFamily, vllm_counters(metrics, info), LABELS, labels)
    accepted = "vllm:spec_decode_num_accepted_tokens_per_pos"
    yield accepted_by_position(accepted, info, LABELS, labels)
    yield successes(metrics, labels)
    yield from histogram_families(vllm_histograms(metrics), LABELS, labels)


def vllm_gauges(info: "EngineInfo") -> dict[str, float]:
    return {
        "vllm:num_requests_running": running_requests(info),
        "vllm:num_requests_waiting": info["waiting_requests"],
        "vllm:kv_cache_usage_perc": kv_utilisation(info),
    }


def vllm_cache_config(info: "EngineInfo", labels: Sequence[str]) -> GaugeMetricFamily:
    """Return the metric whose labels say how the KV cache is laid out."""
    stated = {"block_size": info["page_size"], "num_gpu_blocks": info["total_pages"]}
    family = GaugeMetricFamily(*described("vllm:cache_config_info"), labels=(*LABELS, *stated))
    family.add_metric((*labels, *map(str, stated.values())), 1)
    return family


def vllm_counters(metrics: "Metrics", info: "EngineInfo") -> dict[str, float]:
    return {
        "vllm:prompt_tokens": metrics.prompt_tokens.total,
        "vllm:prompt_tokens_cached": metrics.cached_tokens,
        "vllm:generation_tokens": metrics.generated_tokens.total,
        "vllm:num_preemptions": info["num_preemptions"],
        "vllm:prefix_cache_queries": metrics.prompt_tokens.total,
        "vllm:prefix_cache_hits": metrics.cached_tokens,
        "vllm:spec_decode_num_drafts": info["num_drafts"],
        "vllm:spec_decode_num_draft_tokens": info["num_draft_tokens"],
        "vllm:spec_decode_num_accepted_tokens": info["num_accepted_tokens"],
    }


def accepted_by_position(
    name: str,
    info: "EngineInfo",
    names: Sequence[str] = (),
    labels: Sequence[str] = (),
) -> CounterMetricFamily:
    """Return the counter of accepted draft tokens, with as many positions as a draft can have."""
    family = CounterMetricFamily(*described(name), labels=(*names, "position"))
    for position in range(info["max_draft_tokens"]):
        family.add_metric((*labels, str(position)), info["num_accepted_at"][position])
    return family


def successes(metrics: "Metrics", labels: Sequence[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        *described("vllm:request_success"), labels=(*LABELS, "finished_reason")
    )
    for reason in FINISHED_REASONS:
        family.add_metric((*labels, reason), metrics.finished[reason])
    return family


def vllm_histograms(metrics: "Metrics") -> "dict[str, SecondsHistogram]":
    return {
        "vllm:time_to_first_token_seconds": metrics.time_to_first_token,
        "vllm:inter_token_latency_seconds": metrics.inter_token,
        "vllm:request_time_per_output_token_seconds": metrics.seconds_per_token,
        "vllm:request_queue_time_seconds": metrics.queue_seconds,
        "vllm:request_prefill_time_seconds": metrics.prefill_seconds,
        "vllm:request_decode_time_seconds": metrics.decode_seconds,
        "vllm:e2e_request_latency_seconds": metrics.request_seconds,
    }

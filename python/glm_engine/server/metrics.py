"""What the server counts, and its Prometheus text."""

import asyncio
import time
from collections import Counter

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
)

from glm_engine.core import acceptance
from glm_engine.server.metric_texts import described
from glm_engine.server.utilisation import batch_occupancy, kv_utilisation
from glm_engine.server.vllm_metrics import accepted_by_position, vllm_families
from glm_engine.server.windows import RecentCount, SecondsHistogram

OUTCOMES = ((500, "failed"), (499, "disconnected"), (400, "refused"), (0, "finished"))
PAGE_STATES = ("free", "owned", "cached")


def outcome_of(status):
    """Return the word of a status."""
    return next(word for least, word in OUTCOMES if status >= least)


class Metrics:
    """Counts of this process; the engine's own come from `info` when asked."""

    def __init__(self):
        self.began = time.monotonic()
        self.requests = Counter()
        self.prompt_tokens = RecentCount()
        self.cached_tokens = 0
        self.generated_tokens = RecentCount()
        self.time_to_first_token = SecondsHistogram()
        self.inter_token = SecondsHistogram()
        self.request_seconds = SecondsHistogram()
        self.queue_seconds = SecondsHistogram()
        self.prefill_seconds = SecondsHistogram()
        self.decode_seconds = SecondsHistogram()
        self.seconds_per_token = SecondsHistogram()
        self.finished = Counter()
        self.drafts = {name: RecentCount() for name in acceptance.COUNTS}

    def take_tokens(self, count, now, before, visit):
        """Count tokens that came together; `before` is when their choice had its last ones."""
        self.generated_tokens.add(count, now)
        if before is not None:
            self.inter_token.add((now - before) / count, now, count)
            return
        if visit.completion_tokens == count:
            self.time_to_first_token.add(now - visit.began, now)
        if count > 1:
            self.inter_token.add(0.0, now, count - 1)

    def take_drafts(self, info, now):
        """Count the drafts since the last call; return the counts of the last minute."""
        for name, count in self.drafts.items():
            count.add(info[name] - count.total, now)
        return {name: count.recent(now) for name, count in self.drafts.items()}

    def take_prompt(self, num_tokens, num_cached, now):
        """Count a prompt once the engine has read it."""
        self.prompt_tokens.add(num_tokens, now)
        self.cached_tokens += num_cached

    def take_start(self, queue_seconds, prefill_seconds, now):
        """Count how long a sequence waited for its first step, and read until its first token."""
        self.queue_seconds.add(max(0.0, queue_seconds), now)
        self.prefill_seconds.add(prefill_seconds, now)

    def take_visit(self, visit):
        """Count a request, and its time if it had a prompt: polls and refusals would skew that."""
        self.requests[visit.endpoint, outcome_of(visit.status)] += 1
        if visit.prompt_tokens:
            now = time.monotonic()
            self.request_seconds.add(now - visit.began, now)
            self.take_decode(visit, now)

    def take_decode(self, visit, now):
        """Count the time behind the first token; tokens that all came together took none."""
        if not visit.completion_tokens:
            return
        seconds = visit.last_token_at - visit.first_token_at
        self.decode_seconds.add(seconds, now)
        if visit.completion_tokens > 1:
            self.seconds_per_token.add(seconds / (visit.completion_tokens - 1), now)


def counters(metrics, info):
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


def gauges(service, info):
    return {
        "glm_requests_live": info["live_requests"],
        "glm_requests_waiting": info["waiting_requests"],
        "glm_requests_inside": service.gate.num_inside,
        "glm_open_streams": len(service.streams),
        "glm_tasks": len(asyncio.all_tasks(service.bridge.loop)),
        "glm_kv_utilisation": kv_utilisation(info),
        "glm_batch_occupancy": batch_occupancy(info),
        "glm_draining": float(service.gate.is_draining),
    }


class ServiceCollector:
    """Reads the counts of a service when Prometheus asks."""

    def __init__(self, service):
        self.service = service

    def collect(self):
        metrics, info = self.service.metrics, self.service.engine.info()
        labels = ("endpoint", "outcome")
        requests = CounterMetricFamily(*described("glm_requests"), labels=labels)
        for labels, count in metrics.requests.items():
            requests.add_metric(labels, count)
        yield requests
        for name, value in counters(metrics, info).items():
            yield CounterMetricFamily(*described(name), value=value)
        yield accepted_by_position(described("glm_accepted_draft_tokens"), info)
        for name, value in gauges(self.service, info).items():
            yield GaugeMetricFamily(*described(name), value=value)
        yield pages_of(info)
        yield from histograms(metrics)
        yield from vllm_families(self.service, info)


def pages_of(info):
    pages = GaugeMetricFamily(*described("glm_kv_pages"), labels=("state",))
    for state in PAGE_STATES:
        pages.add_metric((state,), info[f"{state}_pages"])
    return pages


def histograms(metrics):
    for name, histogram in (
        ("glm_time_to_first_token_seconds", metrics.time_to_first_token),
        ("glm_inter_token_seconds", metrics.inter_token),
        ("glm_request_seconds", metrics.request_seconds),
    ):
        family = HistogramMetricFamily(*described(name))
        family.add_metric((), histogram.cumulative(), histogram.sum)
        yield family


class MetricsPage:
    """The text of /metrics."""

    def __init__(self, service):
        self.registry = CollectorRegistry()
        self.registry.register(ServiceCollector(service))
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def text(self):
        return generate_latest(self.registry)

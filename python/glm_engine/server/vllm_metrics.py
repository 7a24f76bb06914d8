"""The server's counts under the names that vLLM's servers give them, for routers and dashboards."""

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)

from glm_engine.server import metric_texts
from glm_engine.server.utilisation import kv_utilisation, running_requests

LABELS = ("model_name", "engine")
ENGINE = "0"
FINISHED_REASONS = ("stop", "length", "abort", "error")


def vllm_families(service, info):
    """Yield the metrics of a service, whose figures `Metrics` and `Engine.info` hold."""
    labels, metrics = (service.model_name, ENGINE), service.metrics
    for name, value in gauges(info).items():
        yield filled(GaugeMetricFamily(*described(name), labels=LABELS), labels, value)
    yield cache_config(info, labels)
    for name, value in counters(metrics, info).items():
        yield filled(CounterMetricFamily(*described(name), labels=LABELS), labels, value)
    accepted = described("spec_decode_num_accepted_tokens_per_pos")
    yield accepted_by_position(accepted, info, LABELS, labels)
    yield successes(metrics, labels)
    for name, histogram in histograms(metrics).items():
        family = HistogramMetricFamily(*described(name), labels=LABELS)
        family.add_metric(labels, histogram.cumulative(), histogram.sum)
        yield family


def described(name):
    return metric_texts.described(f"vllm:{name}")


def filled(family, labels, value):
    family.add_metric(labels, value)
    return family


def gauges(info):
    return {
        "num_requests_running": running_requests(info),
        "num_requests_waiting": info["waiting_requests"],
        "kv_cache_usage_perc": kv_utilisation(info),
    }


def cache_config(info, labels):
    """Return the metric whose labels say how the KV cache is laid out."""
    stated = {"block_size": info["page_size"], "num_gpu_blocks": info["total_pages"]}
    family = GaugeMetricFamily(*described("cache_config_info"), labels=(*LABELS, *stated))
    return filled(family, (*labels, *map(str, stated.values())), 1)


def counters(metrics, info):
    return {
        "prompt_tokens": metrics.prompt_tokens.total,
        "prompt_tokens_cached": metrics.cached_tokens,
        "generation_tokens": metrics.generated_tokens.total,
        "num_preemptions": info["num_preemptions"],
        "prefix_cache_queries": metrics.prompt_tokens.total,
        "prefix_cache_hits": metrics.cached_tokens,
        "spec_decode_num_drafts": info["num_drafts"],
        "spec_decode_num_draft_tokens": info["num_draft_tokens"],
        "spec_decode_num_accepted_tokens": info["num_accepted_tokens"],
    }


def accepted_by_position(named, info, names=(), labels=()):
    """Return the counter of accepted draft tokens, with as many positions as a draft can have."""
    family = CounterMetricFamily(*named, labels=(*names, "position"))
    for position in range(info["max_draft_tokens"]):
        family.add_metric((*labels, str(position)), info["num_accepted_at"][position])
    return family


def successes(metrics, labels):
    family = CounterMetricFamily(*described("request_success"), labels=(*LABELS, "finished_reason"))
    for reason in FINISHED_REASONS:
        family.add_metric((*labels, reason), metrics.finished[reason])
    return family


def histograms(metrics):
    return {
        "time_to_first_token_seconds": metrics.time_to_first_token,
        "inter_token_latency_seconds": metrics.inter_token,
        "request_time_per_output_token_seconds": metrics.seconds_per_token,
        "request_queue_time_seconds": metrics.queue_seconds,
        "request_prefill_time_seconds": metrics.prefill_seconds,
        "request_decode_time_seconds": metrics.decode_seconds,
        "e2e_request_latency_seconds": metrics.request_seconds,
    }

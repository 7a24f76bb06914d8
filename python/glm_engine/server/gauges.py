"""The live figures of /gauges: JSON for the page, rates and percentiles of the last minute."""

import time

from glm_engine.core.acceptance import acceptance_length, acceptance_rate, speculation_of
from glm_engine.server.utilisation import batch_occupancy, kv_utilisation

PERCENTILES = (50, 90, 99)


def gauges(service):
    """Return the figures; None where nothing was measured in the last minute."""
    info, metrics, now = service.engine.info(), service.metrics, time.monotonic()
    return {
        "model": service.model_name,
        "device": info["device"],
        "uptime_s": now - metrics.began,
        "tokens_per_second": metrics.generated_tokens.per_second(now),
        "prompt_tokens_per_second": metrics.prompt_tokens.per_second(now),
        "batch_occupancy": batch_occupancy(info),
        "live_requests": info["live_requests"],
        "max_batch": info["max_batch"],
        "waiting_requests": info["waiting_requests"],
        "max_queue": service.max_queue,
        "kv_utilisation": kv_utilisation(info),
        "free_pages": info["free_pages"],
        "cached_pages": info["cached_pages"],
        "total_pages": info["total_pages"],
        **drafts(metrics, info, now),
        "ttft_ms": milliseconds(metrics.time_to_first_token, now),
        "inter_token_ms": milliseconds(metrics.inter_token, now),
        "requests_total": sum(metrics.requests.values()),
        "open_streams": len(service.streams),
        "is_draining": service.gate.is_draining,
    }


def drafts(metrics, info, now):
    counts = metrics.take_drafts(info, now)
    return {
        "speculate": speculation_of(info),
        "acceptance_length": acceptance_length(counts),
        "acceptance_rate": acceptance_rate(counts),
    }


def milliseconds(histogram, now):
    found = histogram.percentiles(now, PERCENTILES)
    return {
        f"p{one}": None if seconds is None else seconds * 1000 for one, seconds in found.items()
    }

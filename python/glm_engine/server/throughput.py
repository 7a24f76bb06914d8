"""What the server says of its engine: once at the start, then at intervals while there is work."""

import asyncio
import time

from glm_engine.core import acceptance
from glm_engine.server.logs import log
from glm_engine.server.utilisation import kv_utilisation, running_requests

CPU = "CPU"


def serving_fields(service, address):
    """Return what the start says: the model, where it runs, its KV cache, the drafts, the URLs."""
    info = service.engine.info()
    is_cpu = info["device"].startswith(CPU)
    pages_per_request = -(-info["max_seq"] // info["page_size"])
    return {
        "model": service.model_name,
        "device": "cpu" if is_cpu else "cuda",
        "device_name": info["device"],
        "gpus": 0 if is_cpu else info["world_size"],
        "world_size": info["world_size"],
        "context_length": info["max_seq"],
        "kv_cache_tokens": info["total_pages"] * info["page_size"],
        "kv_cache_requests": info["total_pages"] // pages_per_request,
        "speculate": acceptance.stated_speculation(info),
        "num_prediction_layers": info["num_prediction_layers"],
        "api": f"{address}/v1",
        "page": f"{address}/",
        "api_keys": len(service.keys.digests),
        "api_keys_from": service.keys.sources,
    }


class Throughput:
    """Rates of the engine since they were last asked for."""

    def __init__(self, service, now):
        self.service = service
        self.hit_rate = 0.0
        self.at, self.before = now, self.counts(service.engine.info())

    def counts(self, info):
        metrics = self.service.metrics
        return {
            "computed": info["num_prefill_tokens"],
            "generated": metrics.generated_tokens.total,
            "prompt": metrics.prompt_tokens.total,
            "cached": metrics.cached_tokens,
            **acceptance.gained(info),
        }

    def fields(self, now):
        """Return the rates since the last call; None where no request ran or waits."""
        info = self.service.engine.info()
        found = self.counts(info)
        gains = {name: count - self.before[name] for name, count in found.items()}
        seconds, self.at, self.before = now - self.at, now, found
        if gains["prompt"]:
            self.hit_rate = gains["cached"] / gains["prompt"]
        if not (info["live_requests"] or any(gains.values())):
            return None
        return {
            "running": running_requests(info),
            "waiting": info["waiting_requests"],
            "prompt_tokens_per_second": round(gains["computed"] / seconds, 1),
            "generated_tokens_per_second": round(gains["generated"] / seconds, 1),
            "kv_cache_usage_percent": round(100 * kv_utilisation(info), 1),
            "prefix_cache_hit_rate_percent": round(100 * self.hit_rate, 1),
            **acceptance_fields(gains),
        }


def acceptance_fields(gains):
    """Return what is said of draft tokens where there were some."""
    if not gains["num_drafts"]:
        return {}
    length, rate = acceptance.acceptance_length(gains), acceptance.acceptance_rate(gains)
    return {
        "mean_acceptance_length": round(length, 2),
        "draft_acceptance_rate_percent": round(100 * rate, 1),
    }


async def log_throughput(service):
    """Log a line at each interval in which there was work, for as long as the server runs."""
    seconds = service.settings.throughput_seconds
    if not seconds:
        return
    throughput = Throughput(service, time.monotonic())
    while True:
        await asyncio.sleep(seconds)
        if fields := throughput.fields(time.monotonic()):
            log.info("throughput", **fields)

"""Health, metrics and live figures: for probes, for the page, and for the log."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from glm_engine.core import acceptance
from glm_engine.core.acceptance import acceptance_length, acceptance_rate, speculation_of
from glm_engine.core.reports import device_kind
from glm_engine.server.http.logs import log
from glm_engine.server.http.metrics import batch_occupancy, kv_utilisation, running_requests

if TYPE_CHECKING:
    from glm_engine.core.reports import EngineInfo
    from glm_engine.server.app import Service
    from glm_engine.server.http.metrics import SecondsHistogram


PERCENTILES = (50, 90, 99)
PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def live_figures(service: "Service") -> dict[str, Any]:
    """Return the figures; None where nothing was measured in the last minute."""
    info, metrics, now = service.engine.info(), service.metrics, time.monotonic()
    drafts = metrics.take_drafts(info, now)
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
        "speculate": speculation_of(info),
        "acceptance_length": acceptance_length(drafts),
        "acceptance_rate": acceptance_rate(drafts),
        "ttft_ms": milliseconds(metrics.time_to_first_token, now),
        "inter_token_ms": milliseconds(metrics.inter_token, now),
        "requests_total": sum(metrics.requests.values()),
        "open_streams": len(service.streams),
        "is_draining": service.admission.is_draining,
    }


def milliseconds(histogram: "SecondsHistogram", now: float) -> dict[str, float | None]:
    found = histogram.percentiles(now, PERCENTILES)
    return {
        f"p{one}": None if seconds is None else seconds * 1000 for one, seconds in found.items()
    }


def serving_fields(service: "Service", address: str) -> dict[str, Any]:
    """Return what the start says: the model, where it runs, its KV cache, the drafts, the URLs."""
    info = service.engine.info()
    device = device_kind(info["device"])
    pages_per_request = -(-info["max_seq"] // info["page_size"])
    return {
        "model": service.model_name,
        "device": device,
        "device_name": info["device"],
        "gpus": 0 if device == "cpu" else info["world_size"],
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

    def __init__(self, service: "Service", now: float) -> None:
        self.service = service
        self.hit_rate = 0.0
        self.at, self.before = now, self.counts(service.engine.info())

    def counts(self, info: "EngineInfo") -> dict[str, int]:
        metrics = self.service.metrics
        return {
            "computed": info["num_prefill_tokens"],
            "generated": metrics.generated_tokens.total,
            "prompt": metrics.prompt_tokens.total,
            "cached": metrics.cached_tokens,
            **acceptance.gained(info),
        }

    def fields(self, now: float) -> dict[str, Any] | None:
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


def acceptance_fields(gains: dict[str, int]) -> dict[str, float]:
    """Return what is said of draft tokens where there were some."""
    if not gains["num_drafts"]:
        return {}
    length, rate = acceptance.acceptance_length(gains), acceptance.acceptance_rate(gains)
    return {
        "mean_acceptance_length": round(length or 0.0, 2),
        "draft_acceptance_rate_percent": round(100 * (rate or 0.0), 1),
    }


async def log_throughput(service: "Service") -> None:
    """Log a line at each interval in which there was work, for as long as the server runs."""
    seconds = service.settings.throughput_seconds
    if not seconds:
        return
    throughput = Throughput(service, time.monotonic())
    while True:
        await asyncio.sleep(seconds)
        if fields := throughput.fields(time.monotonic()):
            log.info("throughput", **fields)


def health_router(service: "Service") -> APIRouter:
    router = APIRouter(tags=["operation"])

    def state(is_fine: bool, name: str) -> Response:
        return JSONResponse({"status": name}, 200 if is_fine else 503)

    @router.get("/health")
    @router.get("/healthz")
    async def healthz() -> Response:
        """Report whether the process and its engine are healthy."""
        is_usable = service.is_usable()
        return state(is_usable, "ok" if is_usable else "the engine has failed")

    @router.get("/readyz")
    async def readyz() -> Response:
        """Report whether the server accepts requests."""
        if service.admission.is_draining:
            return state(False, "draining")
        is_usable = service.is_usable()
        return state(is_usable, "ready" if is_usable else "the engine has failed")

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return metrics in the text format of Prometheus."""
        return Response(service.metrics_page(), media_type=PROMETHEUS_TEXT)

    @router.get("/gauges")
    async def show_gauges() -> Response:
        """Return live figures: rates and percentiles of the last minute."""
        return JSONResponse(live_figures(service))

    return router

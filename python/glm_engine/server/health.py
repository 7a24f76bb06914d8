"""Health, metrics and live figures."""

from fastapi import APIRouter
from starlette.responses import JSONResponse, PlainTextResponse, Response

from glm_engine.server.gauges import gauges

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def health_router(service):
    router = APIRouter(tags=["operation"])

    def state(is_fine, name):
        return JSONResponse({"status": name}, 200 if is_fine else 503)

    @router.get("/health")
    @router.get("/healthz")
    async def healthz():
        """Report whether the process and its engine are healthy."""
        is_usable = service.is_usable()
        return state(is_usable, "ok" if is_usable else "the engine has failed")

    @router.get("/readyz")
    async def readyz():
        """Report whether the server accepts requests."""
        if service.gate.is_draining:
            return state(False, "draining")
        is_usable = service.is_usable()
        return state(is_usable, "ready" if is_usable else "the engine has failed")

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics():
        """Return metrics in the text format of Prometheus."""
        return Response(service.metrics_page.text(), media_type=PROMETHEUS_TEXT)

    @router.get("/gauges")
    async def show_gauges():
        """Return live figures: rates and percentiles of the last minute."""
        return JSONResponse(gauges(service))

    return router

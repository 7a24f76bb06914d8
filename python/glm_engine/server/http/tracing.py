"""A span for each request, where OpenTelemetry's variables ask for it and its packages are here."""

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog

from glm_engine.server.http.auth import GUARDED

if TYPE_CHECKING:
    from glm_engine.server.choices import Choice
    from glm_engine.server.http.request_record import RequestRecord


log = structlog.get_logger("server")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
SUPPORTED = "http/protobuf"
CONTEXT_HEADERS = ("traceparent", "tracestate")
SPAN_NAME, SERVICE_NAME = "llm_request", "glm-engine"
CLOSE_SECONDS = 2
NANOSECONDS = 1_000_000_000


def first_stated(names: Iterable[str], environment: Mapping[str, str]) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def is_wanted(environment: Mapping[str, str]) -> bool:
    """Say whether the standard variables ask for spans of OTLP."""
    is_off = environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    exporters = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    is_named = "otlp" in [one.strip() for one in exporters.split(",")]
    return bool(first_stated(ENDPOINTS, environment)) and is_named and not is_off


def tracing_of(model_name: str, environment: Mapping[str, str] = os.environ) -> "Tracing | None":
    """Return what writes spans; None where nobody asks for them or, with a line, none can be."""
    if not is_wanted(environment):
        return None
    protocol = first_stated(PROTOCOLS, environment) or SUPPORTED
    if protocol != SUPPORTED:
        log.warning(f"tracing disabled: expected OTLP protocol {SUPPORTED}, got {protocol}")
        return None
    try:
        return Tracing(model_name)
    except ImportError as error:
        package = "glm-engine[otel]"
        log.warning(f"tracing disabled: OpenTelemetry is not installed; install {package}: {error}")
        return None


class Tracing:
    """Hands spans to OpenTelemetry's thread, which exports them; what it cannot take is dropped."""

    def __init__(self, model_name: str) -> None:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME as NAME_KEY
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create()
        if resource.attributes[NAME_KEY].startswith("unknown_service"):
            resource = resource.merge(Resource({NAME_KEY: SERVICE_NAME}))
        self.provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self.provider.get_tracer(SERVICE_NAME)
        self.extract = TraceContextTextMapPropagator().extract
        self.kind = trace.SpanKind.SERVER
        self.failed = trace.Status(trace.StatusCode.ERROR)
        self.model_name = model_name

    def write(self, record: "RequestRecord", headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Write the span of a request that has ended, below the one that its headers name."""
        if not record.endpoint.startswith(GUARDED):
            return
        carrier = {name.decode(): text.decode("latin-1") for name, text in headers}
        context = self.extract({name: carrier.get(name, "") for name in CONTEXT_HEADERS})
        ended = time.time_ns()
        began = ended - int((time.monotonic() - record.began) * NANOSECONDS)
        attributes = attributes_of(record, self.model_name)
        span = self.tracer.start_span(SPAN_NAME, context, self.kind, attributes, start_time=began)
        if record.status >= 500:
            span.set_status(self.failed)
        span.end(ended)

    def close(self) -> None:
        """Export what is left, unless that takes long."""
        closing = threading.Thread(target=self.provider.shutdown, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def attributes_of(record: "RequestRecord", model_name: str) -> dict[str, Any]:
    """Return what is known of a request, by the names of OpenTelemetry's GenAI and of vLLM."""
    found = {
        "http.route": record.endpoint,
        "http.response.status_code": record.status,
        "gen_ai.request.id": record.request_id,
        "gen_ai.request.model": model_name,
        "gen_ai.response.model": model_name,
    }
    if record.prompt_tokens:
        found |= usage_of(record)
    if record.finish_reason:
        found["gen_ai.response.finish_reasons"] = record.finish_reason.split(",")
    if record.choices:
        found |= asked_of(record.choices)
    return found


def usage_of(record: "RequestRecord") -> dict[str, Any]:
    now, first = time.monotonic(), record.time_to_first_token()
    found = {
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.completion_tokens,
        "gen_ai.usage.prompt_tokens": record.prompt_tokens,
        "gen_ai.usage.completion_tokens": record.completion_tokens,
        "gen_ai.latency.e2e": now - record.began,
    }
    if first is not None:
        found["gen_ai.latency.time_to_first_token"] = first
        started, first_at = record.started_at or 0.0, record.first_token_at or 0.0
        found["gen_ai.latency.time_in_queue"] = started - record.submitted_at
        found["gen_ai.latency.time_in_model_prefill"] = first_at - started
        found["gen_ai.latency.time_in_model_decode"] = record.decode_seconds()
    return found


def asked_of(choices: "Sequence[Choice]") -> dict[str, Any]:
    request = choices[0].request
    return {
        "gen_ai.request.temperature": request.sampling.temperature,
        "gen_ai.request.top_p": request.sampling.top_p,
        "gen_ai.request.top_k": request.sampling.top_k,
        "gen_ai.request.max_tokens": request.max_tokens,
        "gen_ai.request.n": len(choices),
        "gen_ai.usage.num_sequences": len(choices),
    }

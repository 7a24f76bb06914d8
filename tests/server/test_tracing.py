"""Spans as an OTLP collector gets them, and what happens where there is none."""

import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from glm_engine.server.http.tracing import is_wanted, tracing_of
from tests import groups
from tests.server.serving import ENDLESS, ENVIRONMENT, MODEL, PATIENCE_SECONDS, QUESTION

COMPLETIONS = "/v1/completions"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES_ENDPOINT = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BRINGS_COLLECTOR = groups.needs("opentelemetry.exporter.otlp.proto.http")


class Collector(ThreadingHTTPServer):
    """Keeps the spans that come, each with its service's name."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.spans = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def environment(self):
        url = f"http://127.0.0.1:{self.server_address[1]}"
        return {ENDPOINT: url, "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_SERVICE_NAME": "my-model"}

    def wait_for(self, count):
        until = time.monotonic() + PATIENCE_SECONDS
        while len(self.spans) < count:
            assert time.monotonic() < until, self.spans
            time.sleep(0.02)
        return self.spans


class CollectorHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )

        assert self.path == "/v1/traces"
        content = self.rfile.read(int(self.headers["content-length"]))
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            names = values_of(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.server.spans += [(names["service.name"], span) for span in scope.spans]
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Say nothing."""


def values_of(attributes):
    """Return attributes as plain values by their names."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def listening_without_an_answer():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@BRINGS_COLLECTOR
def test_a_request_is_a_span_below_its_callers(start_server) -> None:
    with Collector() as collector:
        server = start_server(environment=collector.environment)
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
        fields = {"prompt": QUESTION, "max_tokens": 2, "n": 2, "temperature": 0.5}
        began = time.time_ns()
        server.http.post(COMPLETIONS, json=fields, headers=headers).raise_for_status()
        server.http.post(COMPLETIONS, json={**ENDLESS, "max_tokens": 3}, headers=headers)
        server.http.post(COMPLETIONS, json={})
        for path in ("/healthz", "/metrics", "/gauges", "/"):
            server.http.get(path, headers=headers)
        (name, first), (_, second), (_, third) = collector.wait_for(3)
        assert server.stop() == 0
        assert len(collector.spans) == 3
    assert (name, first.name, first.kind) == ("my-model", "llm_request", 2)
    for span in (first, second):
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert third.trace_id.hex() != TRACE
    assert third.parent_span_id == b""
    assert began <= first.start_time_unix_nano < first.end_time_unix_nano <= time.time_ns()
    found = values_of(first.attributes)
    assert found["http.route"] == COMPLETIONS
    assert found["http.response.status_code"] == 200
    assert found["gen_ai.request.id"] == "mine"
    assert found["gen_ai.response.model"] == MODEL
    assert (found["gen_ai.request.temperature"], found["gen_ai.request.max_tokens"]) == (0.5, 2)
    assert found["gen_ai.request.n"] == 2
    assert found["gen_ai.usage.prompt_tokens"] == found["gen_ai.usage.input_tokens"] == 5
    assert found["gen_ai.usage.completion_tokens"] == 4
    assert found["gen_ai.latency.time_in_queue"] >= 0
    assert found["gen_ai.latency.time_in_model_prefill"] > 0
    assert 0 < found["gen_ai.latency.time_to_first_token"] <= found["gen_ai.latency.e2e"]
    assert values_of(third.attributes)["http.response.status_code"] == 400


@BRINGS_COLLECTOR
def test_what_the_caller_does_not_sample_is_not_sent(start_server) -> None:
    with Collector() as collector:
        server = start_server(environment=collector.environment)
        for flags in ("00", "01"):
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}
            server.http.post(COMPLETIONS, json={"prompt": QUESTION}, headers=headers)
        broken = {"traceparent": "00-what-01"}
        assert server.http.post(COMPLETIONS, json={}, headers=broken).status_code == 400
        assert server.stop() == 0
        assert [span.trace_id.hex() == TRACE for _, span in collector.spans] == [True, False]


@BRINGS_COLLECTOR
def test_a_collector_that_does_not_answer_holds_nobody(start_server) -> None:
    with listening_without_an_answer() as url:
        environment = {TRACES_ENDPOINT: f"{url}/v1/traces", "OTEL_BSP_SCHEDULE_DELAY": "10"}
        server = start_server(environment=environment)
        for _ in range(20):
            answer = server.http.post(COMPLETIONS, json={"prompt": QUESTION}, timeout=20)
            assert answer.status_code == 200
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://x"}, True),
        ({TRACES_ENDPOINT: "http://x"}, True),
        ({ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "true"}, False),
        ({ENDPOINT: "http://x", "OTEL_SDK_DISABLED": "false"}, True),
        ({ENDPOINT: "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
        ({ENDPOINT: "http://x", "OTEL_TRACES_EXPORTER": "console,otlp"}, True),
        ({"OTEL_SERVICE_NAME": "x"}, False),
    ],
)
def test_the_standard_variables_decide(environment, expected) -> None:
    assert is_wanted(environment) == expected
    if not expected:
        assert tracing_of(MODEL, environment) is None


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "tracing disabled: OpenTelemetry is not installed; install glm-engine[otel]"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "tracing disabled: expected OTLP protocol http/protobuf, got grpc",
        ),
    ],
)
def test_what_cannot_be_is_one_line_at_the_start(start_server, tmp_path, more, line) -> None:
    absent = tmp_path / "absent" / "sitecustomize.py"
    absent.parent.mkdir()
    absent.write_text('import sys\nsys.modules["opentelemetry.sdk"] = None\n')
    path = f"{absent.parent}:{ENVIRONMENT['PYTHONPATH']}"
    server = start_server(environment={ENDPOINT: "http://127.0.0.1:9", "PYTHONPATH": path, **more})
    answer = server.http.post(COMPLETIONS, json={"prompt": QUESTION})
    assert answer.status_code == 200
    told = [one for one in server.log().splitlines() if "tracing disabled" in one]
    assert [one.count(line) for one in told] == [1]

"""The panels of the dashboard as tables: title, unit, what it says, and its queries."""

from collections.abc import Sequence
from dataclasses import dataclass

CHOSEN = '{job=~"$job",instance=~"$instance"}'
RATE = "[$__rate_interval]"
API = 'endpoint=~"/v1/.*"'


@dataclass(frozen=True)
class Query:
    """A PromQL expression and the name of its lines in the legend."""

    expression: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One picture. `unit` is Grafana's name of it; `kind` its plugin."""

    title: str
    unit: str
    description: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    is_stacked: bool = False
    greatest: float | None = None


@dataclass(frozen=True)
class Row:
    """Panels that stand side by side under a heading."""

    title: str
    panels: Sequence[Panel]


def total(name: str, by: str = "") -> str:
    """The sum of a gauge over the chosen servers."""
    return f"sum{by_labels(by)}({name}{CHOSEN})"


def per_second(name: str, by: str = "", match: str = CHOSEN) -> str:
    """The rate of a counter, summed over the chosen servers."""
    return f"sum{by_labels(by)}(rate({name}{match}{RATE}))"


def by_labels(by: str) -> str:
    return f" by ({by}) " if by else ""


def share(part: str, whole: str) -> str:
    """Part over whole; 0 where nothing happened."""
    return f"{part} / clamp_min({whole}, 1e-9)"


def cost(part: str, whole: str) -> str:
    """Part over whole; nothing where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def quantiles(histogram: str) -> Sequence[Query]:
    """p50, p90 and p99 of a histogram of seconds."""
    buckets = per_second(f"{histogram}_bucket", "le")
    return tuple(
        Query(f"histogram_quantile({number / 100:g}, {buckets})", f"p{number}")
        for number in (50, 90, 99)
    )


def api_requests(match: str = "") -> str:
    """The rate of requests to the API; 0 before the first one."""
    chosen = CHOSEN.replace("}", f",{API}{match}}}")
    return f"({per_second('glm_requests_total', match=chosen)} or vector(0))"


ROWS = (
    Row(
        "Requests",
        (
            Panel(
                "Requests per second",
                "reqps",
                "Answered requests by endpoint and outcome.",
                (
                    Query(
                        per_second("glm_requests_total", "endpoint, outcome"),
                        "{{endpoint}} {{outcome}}",
                    ),
                ),
                is_stacked=True,
            ),
            Panel(
                "Inside the server",
                "short",
                "Requests in the engine, requests that wait for a slot, and open streams.",
                (
                    Query(total("glm_requests_live"), "live"),
                    Query(total("glm_requests_waiting"), "waiting"),
                    Query(total("glm_open_streams"), "open streams"),
                ),
            ),
            Panel(
                "Unfinished requests",
                "percentunit",
                "Share of /v1/ requests that were refused, failed or cancelled by the client.",
                (
                    Query(
                        share(api_requests(',outcome!="finished"'), api_requests()),
                        "not finished",
                    ),
                ),
                greatest=1.0,
            ),
            Panel(
                "Draining",
                "short",
                "Servers that are shutting down and accept no new requests.",
                (Query(total("glm_draining"), "draining"),),
                kind="stat",
            ),
        ),
    ),
    Row(
        "Tokens",
        (
            Panel(
                "Generated tokens per second",
                "short",
                "Output tokens of all requests.",
                (Query(per_second("glm_generated_tokens_total"), "generated"),),
            ),
            Panel(
                "Prompt tokens per second",
                "short",
                "Prompt tokens, and how many of them were in the prefix cache.",
                (
                    Query(per_second("glm_prompt_tokens_total"), "prompt"),
                    Query(per_second("glm_cached_prompt_tokens_total"), "cached"),
                ),
            ),
            Panel(
                "Prefix cache",
                "percentunit",
                "Share of prompt tokens that were in the prefix cache.",
                (
                    Query(
                        share(
                            per_second("glm_cached_prompt_tokens_total"),
                            per_second("glm_prompt_tokens_total"),
                        ),
                        "cached",
                    ),
                ),
                greatest=1.0,
            ),
            Panel(
                "Generated tokens per step",
                "short",
                "Average number of requests in a forward pass.",
                (
                    Query(
                        share(
                            per_second("glm_generated_tokens_total"), per_second("glm_steps_total")
                        ),
                        "tokens",
                    ),
                ),
            ),
        ),
    ),
    Row(
        "Latency",
        (
            Panel(
                "Time to first token",
                "s",
                "From the request's arrival to its first output token.",
                quantiles("glm_time_to_first_token_seconds"),
            ),
            Panel(
                "Time between tokens",
                "s",
                "Between consecutive output tokens of a request.",
                quantiles("glm_inter_token_seconds"),
            ),
            Panel(
                "Request time",
                "s",
                "From arrival to the end of the answer, for requests whose prompt was read.",
                quantiles("glm_request_seconds"),
            ),
        ),
    ),
    Row(
        "Batch and memory",
        (
            Panel(
                "Batch occupancy",
                "percentunit",
                "Requests in a forward pass as a fraction of the maximum batch size.",
                (Query(f"glm_batch_occupancy{CHOSEN}", "{{instance}}"),),
                greatest=1.0,
            ),
            Panel(
                "KV utilisation",
                "percentunit",
                "Share of KV cache pages in use by requests.",
                (Query(f"glm_kv_utilisation{CHOSEN}", "{{instance}}"),),
                greatest=1.0,
            ),
            Panel(
                "KV pages",
                "short",
                "KV cache pages in use by requests, kept for the prefix cache, and free.",
                (Query(total("glm_kv_pages", "state"), "{{state}}"),),
                is_stacked=True,
            ),
            Panel(
                "Preemptions and evictions",
                "ops",
                "Requests preempted because pages ran out, and cached pages evicted.",
                (
                    Query(per_second("glm_preemptions_total"), "preemptions"),
                    Query(per_second("glm_evictions_total"), "evictions"),
                ),
            ),
        ),
    ),
    Row(
        "Process",
        (
            Panel(
                "CPU",
                "short",
                "CPU cores that the server process uses.",
                (
                    Query(
                        per_second("process_cpu_seconds_total", "instance"),
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "CPU time per generated token",
                "s",
                "CPU seconds per generated token, for the whole process (with the model's own "
                "computation on the CPU device) and for the HTTP thread.",
                (
                    Query(
                        cost(
                            per_second("process_cpu_seconds_total"),
                            per_second("glm_generated_tokens_total"),
                        ),
                        "process",
                    ),
                    Query(
                        cost(
                            per_second("glm_http_cpu_seconds_total"),
                            per_second("glm_generated_tokens_total"),
                        ),
                        "HTTP",
                    ),
                ),
            ),
            Panel(
                "Resident memory",
                "bytes",
                "Host memory of the process.",
                (Query(f"process_resident_memory_bytes{CHOSEN}", "{{instance}}"),),
            ),
            Panel(
                "Open files",
                "short",
                "Open file descriptors, including connections.",
                (Query(f"process_open_fds{CHOSEN}", "{{instance}}"),),
            ),
        ),
    ),
)

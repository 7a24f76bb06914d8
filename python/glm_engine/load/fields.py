"""The fields of a report, as its JSON states them."""

from typing import Literal, NotRequired, TypedDict

from glm_engine.bench.head import ReportHead

LatencyName = Literal["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "lateness_ms"]
SummaryName = Literal["mean", "p50", "p90", "p99", "max"]
GaugeName = Literal["batch_occupancy", "kv_utilisation", "waiting_requests"]
ServerFigures = dict[str, float | None]


class Summary(TypedDict):
    """One latency over requests, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Counts(TypedDict):
    """How many requests and tokens there were; `outcomes` counts requests by outcome."""

    num_sent: int
    num_completed: int
    outcomes: dict[str, int]
    messages: list[str]
    exceeded_context: int | None
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    num_events: int
    num_shorter: int
    num_without_usage: int
    peak_concurrency: int


class Rates(TypedDict):
    """What came in a second."""

    arrivals_per_second: float | None
    requests_per_second: float
    prompt_tokens_per_second: float
    output_tokens_per_second: float


class Latencies(TypedDict):
    """Each latency; None where no request has it."""

    ttft_ms: Summary | None
    tpot_ms: Summary | None
    itl_ms: Summary | None
    e2e_ms: Summary | None
    lateness_ms: Summary | None


class Goodput(TypedDict):
    """The requests that kept every limit."""

    limits_ms: dict[str, float]
    num_good: int
    requests_per_second: float


class Figures(Counts, Rates, Latencies):
    """The figures of one rate, which is None for inf."""

    rate: float | None
    duration_s: float
    is_interrupted: bool
    goodput: Goodput | None
    client_cpu_seconds: float
    client_cpu_share: float


class GaugeRow(TypedDict):
    """The gauges of an engine, seconds after the start of a rate."""

    seconds: float
    batch_occupancy: float
    kv_utilisation: float
    waiting_requests: float


class Point(Figures):
    """What was measured at one rate, and what the server said of itself meanwhile."""

    num_asked: int
    server: ServerFigures | None
    gauges: list[GaugeRow] | None


class TargetFields(TypedDict):
    """What was measured."""

    url: str
    model: str
    endpoint: str
    device: NotRequired[str]


class WorkloadFields(TypedDict):
    """What was asked for, as the options state it."""

    prompts: str
    outputs: str
    shared_prefix: int
    burstiness: float
    max_concurrency: int | None


class Report(ReportHead):
    """A whole run."""

    target: TargetFields
    workload: WorkloadFields
    seed: int
    is_interrupted: bool
    points: list[Point]

"""What is printed of a run, and which files are reports."""

import json
import math

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.core.files import write_report
from glm_engine.load.figures import make_figures
from glm_engine.load.records import Outcome
from glm_engine.load.report import make_report, print_report, read_report
from tests.python.load.test_figures import record

WORKLOAD = {
    "prompts": "fixed:10",
    "outputs": "fixed:3",
    "shared_prefix": 0,
    "burstiness": 1.0,
    "max_concurrency": None,
}
TARGET = {"url": "there", "model": "small", "endpoint": "completions"}
GREAT = {
    "rate": 1234.5,
    "num_sent": 100_000,
    "num_completed": 99_999,
    "duration_s": 12345.67,
    "requests_per_second": 12345.67,
    "peak_concurrency": 100_000,
    "prompt_tokens_per_second": 12_345_678.9,
    "output_tokens_per_second": 12_345_678.9,
    "goodput": {"limits_ms": {}, "num_good": 3, "requests_per_second": 12345.67},
    "server": {"cpu_us_per_token": 12345.6, "http_cpu_us_per_token": 12345.6},
    "itl_ms": dict.fromkeys(("mean", "p50", "p90", "p99", "max"), 123_456.78),
}


def report_of(*records, is_interrupted=False, **figures):
    point = make_figures(math.inf, [Outcome(100.0, list(records), 0.1)], {})
    point |= {"num_asked": len(records), "server": None, **figures}
    return make_report(TARGET, WORKLOAD, 1, [point], is_interrupted)


def test_great_figures_fit_eighty_columns(capsys):
    print_report(report_of(record(), **GREAT))
    text = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("12,345,678.9") == 2
    assert text.count("123,456.78") == 5


def test_columns_without_data_are_left_out(capsys):
    print_report(report_of(record(), record()))
    text = capsys.readouterr().out
    assert "goodput" not in text
    assert "µs/token" not in text
    assert "load client" in text
    assert "arrivals  Poisson (burstiness 1), " in text


@pytest.mark.parametrize(
    ("endpoint", "process"), [("completions", "server"), ("engine", "process")]
)
def test_each_cost_names_its_process(capsys, endpoint, process):
    report = report_of(record(), **GREAT)
    print_report(report | {"target": TARGET | {"endpoint": endpoint}})
    text = capsys.readouterr().out
    assert f"{process} CPU" in text
    assert f"{process} HTTP" in text
    assert "goodput/s" in text


GAUGES = [
    {"seconds": 0.5, "batch_occupancy": 0.25, "kv_utilisation": 0.5, "waiting_requests": 0},
    {"seconds": 12345.6, "batch_occupancy": 1.0, "kv_utilisation": 0.25, "waiting_requests": 99999},
]


def test_gauges_are_shown_with_the_second_of_their_peak(capsys):
    print_report(report_of(record(), gauges=GAUGES))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["inf", "batch", "used", "62%", "100%", "12345.6"] in lines
    assert ["inf", "KV", "cache", "used", "38%", "50%", "0.5"] in lines
    assert ["inf", "requests", "waiting", "49,999.5", "99,999.0", "12345.6"] in lines
    print_report(report_of(record(), gauges=None))
    assert "time of max" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["seconds", "kv_utilisation"])
@pytest.mark.parametrize("at", [0, 1])
def test_gauges_without_a_value_are_no_report(tmp_path, name, at):
    gauges = [dict(row) for row in GAUGES]
    gauges[at][name] = "many"
    assert refused(tmp_path, report_of(record(), gauges=gauges))


def test_a_server_without_usage_is_named(capsys):
    silent = record(tokens=0)
    silent.has_usage = False
    print_report(report_of(record(), silent))
    text = capsys.readouterr().out
    assert "At rate inf, answers without usage from the server: 1" in text
    assert "shorter" not in text


def test_an_interruption_between_two_rates_is_kept(tmp_path):
    path = tmp_path / "load.json"
    report = report_of(record(), is_interrupted=True)
    write_report(report, path)
    assert read_report(path) == report
    assert read_report(path)["is_interrupted"]


def cut(*outcomes, rate=math.inf):
    """The point of an interrupted rate whose requests had these outcomes, of ten."""
    records = [record() for _ in outcomes]
    for one, outcome in zip(records, outcomes, strict=True):
        one.outcome = outcome
    point = make_figures(rate, [Outcome(100.0, records, 0.1, is_interrupted=True)], {})
    return point | {"num_asked": 10, "server": None}


def refused_at(rate, *messages, outcome="400", completed=0):
    """The point of a rate whose requests were refused with these messages."""
    records = [record() for _ in range(completed)]
    for message in messages:
        records.append(record())
        records[-1].outcome, records[-1].message = outcome, message
    return make_figures(rate, [Outcome(100.0, records, 0.1)], {}) | {
        "num_asked": len(records),
        "server": None,
    }


TOO_LONG = (
    "this model's maximum context length is 512 tokens; this request needs 640 tokens",
    "This model's maximum context length is 512 tokens. However, you requested 700 tokens",
    "the prompt has 640 tokens, but the context length (max_seq) is 512",
)
REFUSED = "requests refused because the context length is 512 tokens"
ADVICE = "Lower --prompts and --outputs, or raise the context length (--max-seq)."


@pytest.mark.parametrize("message", TOO_LONG)
def test_requests_longer_than_the_context_are_told_first_and_without_tables(capsys, message):
    lines = printed(capsys, refused_at(math.inf, message, message), is_interrupted=False)
    assert lines == [f"At rate inf, {REFUSED}: 2 of 2", ADVICE, f"  400: {message}"]


def test_rates_without_a_success_are_left_out_of_the_tables(capsys):
    lines = printed(capsys, whole(2.0), refused_at(4.0, TOO_LONG[0]), is_interrupted=False)
    rows = {line.split()[0] for line in lines if line.strip()}
    assert "2" in rows
    assert "4" not in rows
    assert f"At rate 4, {REFUSED}: 1 of 1" in lines


def test_some_requests_longer_than_the_context_get_the_advice_below_the_tables(capsys):
    lines = printed(capsys, refused_at(4.0, TOO_LONG[0], completed=2), is_interrupted=False)
    assert lines[0].startswith("target")
    told = lines.index(ADVICE)
    assert lines[told - 1] == f"At rate 4, {REFUSED}: 1 of 3"


def test_other_failures_get_no_advice(capsys):
    lines = printed(capsys, refused_at(4.0, TOO_LONG[0], "no"), is_interrupted=False)
    assert lines[0] == "At rate 4, requests failed: 2 with 400"
    assert ADVICE not in lines


def whole(rate):
    point = make_figures(rate, [Outcome(100.0, [record()], 0.1)], {})
    return point | {"num_asked": 1, "server": None}


def printed(capsys, *points, is_interrupted=True):
    print_report(make_report(TARGET, WORKLOAD, 1, list(points), is_interrupted))
    return capsys.readouterr().out.splitlines()


def test_an_interrupted_run_says_how_far_it_came(capsys):
    first, *rest = printed(capsys, cut("200", "200", "429", "interrupted"))
    assert first == (
        "Interrupted: 3 of 10 requests finished (4 sent) at rate inf; "
        "the figures below cover the finished ones."
    )
    (row,) = [line.split() for line in rest if line.split()[:2] == ["inf", "4"]]
    assert row[1:4] == ["4", "2", "1"]
    assert [line for line in rest if "failed:" in line] == [
        "At rate inf, requests failed: 1 with 429"
    ]


def test_without_an_ended_request_there_are_no_tables(capsys):
    lines = printed(capsys, cut("interrupted", "interrupted"))
    count = "2 of 10 requests sent at rate inf, none finished"
    assert lines == [f"Interrupted: {count}; there are no figures."]


def test_rates_before_an_interruption_keep_their_figures(capsys):
    first, *rest = printed(capsys, whole(2.0), cut("interrupted", rate=4.0))
    count = "1 of 10 requests sent at rate 4, none finished"
    assert first == f"Interrupted: {count}; the figures below cover earlier rates."
    assert {line.split()[0] for line in rest if line.strip()} >= {"2"}
    assert not any(line.split()[:1] == ["4"] for line in rest)


def test_a_whole_run_says_nothing_of_interruptions(capsys):
    lines = printed(capsys, whole(2.0), is_interrupted=False)
    assert lines[0].startswith("target")


@pytest.mark.parametrize("absent", ["prompts", "shared_prefix", "max_concurrency"])
def test_a_report_without_its_workload_is_none(tmp_path, absent):
    report = report_of(record())
    report["workload"] = {name: value for name, value in WORKLOAD.items() if name != absent}
    assert refused(tmp_path, report) == f"KeyError({absent!r})"


@pytest.mark.parametrize("name", ["outcomes", "ttft_ms", "goodput", "is_interrupted", "messages"])
def test_a_report_without_a_figure_is_none(tmp_path, name):
    report = report_of(record())
    del report["points"][0][name]
    assert refused(tmp_path, report) == f"KeyError({name!r})"


@pytest.mark.parametrize("content", [{}, [], {"points": [{}]}, {"points": 5}, None])
def test_what_is_no_report(tmp_path, content):
    refused(tmp_path, content)


def refused(folder, content):
    path = folder / "load.json"
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(BadInputError, match="not a glm load report") as caught:
        read_report(path)
    return str(caught.value).partition("report: ")[2]

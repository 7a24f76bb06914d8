"""What the dashboard and `glm load` read is what the server exports."""

from prometheus_client.parser import text_string_to_metric_families

from glm_engine.load.http_client import parse_address
from glm_engine.load.occupancy import gauges_of_server
from glm_engine.load.server_metrics import COUNTERS
from tests.monitoring.queries import expressions, metric_names
from tests.server.serving import MODEL, QUESTION
from tools.monitoring.panels import ROWS


def samples_of(server):
    text = server.http.get("/metrics").text
    families = text_string_to_metric_families(text)
    return [sample for family in families for sample in family.samples]


def test_every_metric_of_the_dashboard_is_exported(server, client):
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=3)
    exported = {sample.name for sample in samples_of(server)}
    assert metric_names() - exported == set()
    assert set(COUNTERS.values()) - exported == set()


def test_the_load_finds_the_gauges(server, client):
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=3)
    occupancy, used, waiting = gauges_of_server(parse_address(str(server.http.base_url)))
    assert 0 <= occupancy <= 1
    assert 0 <= used <= 1
    assert waiting >= 0


def test_labels_of_the_dashboard_are_exported(server, client):
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=3)
    samples = samples_of(server)
    requests = [sample for sample in samples if sample.name == "glm_requests_total"]
    assert all(set(sample.labels) == {"endpoint", "outcome"} for sample in requests)
    assert any(sample.labels["outcome"] == "finished" for sample in requests)
    states = {sample.labels["state"] for sample in samples if sample.name == "glm_kv_pages"}
    assert states == {"free", "owned", "cached"}


def test_polls_and_refusals_do_not_count_among_the_times_of_requests(server, client):
    before = server.metric("glm_request_seconds_count")
    for path in ("/gauges", "/metrics", "/healthz", "/"):
        server.http.get(path)
    assert server.metric("glm_request_seconds_count") == before
    assert server.http.post("/v1/completions", json={}).status_code == 400
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=3)
    server.wait_for_metric("glm_request_seconds_count", before + 1)
    assert server.metric("glm_request_seconds_count") == before + 1


def test_every_histogram_of_the_server_is_drawn(server, client):
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=3)
    names = {one.name for one in samples_of(server)}
    buckets = {one for one in names if one.startswith("glm_") and one.endswith("_bucket")}
    assert buckets == {name for name in metric_names() if name.endswith("_bucket")}
    assert len(expressions()) > len(ROWS)

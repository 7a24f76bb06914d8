"""Health, metrics, gauges and logs."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from glm_engine.server.http import metrics_page
from glm_engine.server.http.metrics import Metrics
from glm_engine.server.http.request_record import RequestRecord
from tests.devices import device_kind
from tests.server.serving import ENDLESS, MODEL, QUESTION

COMPLETIONS = "/v1/completions"
TICKS = 0.03
WAIT_SECONDS = 1
NUM_TOKENS = 500
DEVICE_NAMES = {"cpu": "CPU", "futhark": "Futhark", "cuda": "NVIDIA"}


def samples(server):
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {
        (one.name, *sorted(one.labels.items())): one.value
        for family in families
        for one in family.samples
    }


def test_health(server) -> None:
    assert server.http.get("/healthz").json() == {"status": "ok"}
    assert server.http.get("/health").json() == {"status": "ok"}
    assert server.http.get("/readyz").json() == {"status": "ready"}


def test_metrics_count(server, client) -> None:
    server.wait_until_idle()
    before = samples(server)
    client.completions.create(model=MODEL, prompt=QUESTION, stream=False)
    list(client.completions.create(model=MODEL, prompt=QUESTION, stream=True))
    server.http.post(COMPLETIONS, json={})
    server.wait_until_idle()
    after = samples(server)

    def gain(name, **labels):
        key = (name, *sorted(labels.items()))
        return after[key] - before.get(key, 0)

    assert gain("glm_requests_total", endpoint=COMPLETIONS, outcome="finished") == 2
    assert gain("glm_requests_total", endpoint=COMPLETIONS, outcome="refused") == 1
    assert gain("glm_generated_tokens_total") == 6
    assert gain("glm_prompt_tokens_total") == 10
    assert gain("glm_steps_total") >= 3
    assert 0 < gain("glm_http_cpu_seconds_total") <= gain("process_cpu_seconds_total") + TICKS
    assert gain("glm_time_to_first_token_seconds_count") == 2
    assert gain("glm_inter_token_seconds_count") == 4
    assert gain("glm_request_seconds_count") == 2
    pages = [after["glm_kv_pages", ("state", state)] for state in ("free", "owned", "cached")]
    assert sum(pages) == server.gauges()["total_pages"]
    assert after["glm_requests_live",] == after["glm_open_streams",] == 0
    assert after["process_resident_memory_bytes",] > 2**20


def test_metrics_have_the_names_of_vllm_too(server, client) -> None:
    """Values are ours, which the test before checks; those that we have not are counted here."""
    server.wait_until_idle()
    before = samples(server)
    client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=2, n=2)
    client.completions.create(model=MODEL, prompt=QUESTION)
    server.wait_until_idle()
    after = samples(server)
    labels = (("engine", "0"), ("model_name", MODEL))

    def gain(name, *others):
        key = (f"vllm:{name}", *sorted([*labels, *others]))
        return after[key] - before[key]

    for name, other in (
        ("vllm:prompt_tokens_total", "glm_prompt_tokens_total"),
        ("vllm:generation_tokens_total", "glm_generated_tokens_total"),
        ("vllm:prefix_cache_queries_total", "glm_prompt_tokens_total"),
        ("vllm:prefix_cache_hits_total", "glm_cached_prompt_tokens_total"),
        ("vllm:num_preemptions_total", "glm_preemptions_total"),
        ("vllm:num_requests_waiting", "glm_requests_waiting"),
        ("vllm:num_requests_running", "glm_requests_live"),
        ("vllm:kv_cache_usage_perc", "glm_kv_utilisation"),
        ("vllm:time_to_first_token_seconds_count", "glm_time_to_first_token_seconds_count"),
        ("vllm:inter_token_latency_seconds_sum", "glm_inter_token_seconds_sum"),
        ("vllm:e2e_request_latency_seconds_sum", "glm_request_seconds_sum"),
    ):
        assert after[name, *labels] == after[other,]
    assert gain("prompt_tokens_total") == 10
    assert gain("request_success_total", ("finished_reason", "length")) == 2
    assert gain("request_success_total", ("finished_reason", "stop")) == 1
    assert gain("request_success_total", ("finished_reason", "abort")) == 0
    assert gain("request_decode_time_seconds_count") == 2
    assert gain("request_queue_time_seconds_count") == 3
    assert gain("request_prefill_time_seconds_count") == 3
    assert (
        0 < gain("request_prefill_time_seconds_sum") < gain("e2e_request_latency_seconds_sum") * 2
    )
    assert gain("request_time_per_output_token_seconds_count") == 2
    [config] = [dict(key[1:]) for key in after if key[0] == "vllm:cache_config_info"]
    total = server.gauges()["total_pages"]
    stated = {"block_size": "16", "num_gpu_blocks": str(total)}
    assert config == {"engine": "0", "model_name": MODEL, **stated}


def test_each_metric_says_what_it_means(server, client) -> None:
    client.completions.create(model=MODEL, prompt=QUESTION)
    text = server.http.get("/metrics").text
    described = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    ours = {name: one for name, one in described.items() if name.startswith(("glm_", "vllm:"))}
    assert len(ours) == len(metrics_page.TEXTS)
    assert [name for name, one in ours.items() if not one.endswith(".")] == []
    for name in ("glm_preemptions_total", "vllm:num_preemptions_total"):
        assert ours[name].startswith("Requests preempted")
        assert "continues with the same tokens" in ours[name]
        assert "raise --memory-limit or lower --max-batch" in ours[name]


def test_tokens_that_came_together_are_counted_and_took_no_time() -> None:
    metrics, record = Metrics(), RequestRecord(COMPLETIONS, prompt_tokens=5)
    record.take_tokens(3, record.began + 1)
    metrics.take_record(record)
    assert metrics.seconds_per_token.cumulative()[-1] == ("+Inf", 1)
    assert metrics.seconds_per_token.sum == 0


def test_who_waits_is_counted_as_waiting_and_not_as_reading(start_server, endless_model) -> None:
    server = start_server(*endless_model, "--max-batch", 1)
    begun = httpx.stream("POST", f"{server.url}{COMPLETIONS}", json=ENDLESS, timeout=60)
    with begun as answer, ThreadPoolExecutor(1) as waiting:
        chunks = answer.iter_bytes()
        next(chunks)
        fields = {"prompt": QUESTION, "max_tokens": 1}
        asked = waiting.submit(httpx.post, f"{server.url}{COMPLETIONS}", json=fields, timeout=60)
        server.wait_for_gauges(waiting_requests=1)
        time.sleep(WAIT_SECONDS)
        chunks.close()
        asked.result().raise_for_status()
    found, labels = samples(server), (("engine", "0"), ("model_name", server.model))
    assert found["vllm:request_queue_time_seconds_sum", *labels] > WAIT_SECONDS
    assert found["vllm:time_to_first_token_seconds_sum", *labels] > WAIT_SECONDS
    assert found["vllm:request_prefill_time_seconds_sum", *labels] < WAIT_SECONDS


def test_choices_that_are_given_up_are_counted(endless_server) -> None:
    labels = (("engine", "0"), ("finished_reason", "abort"), ("model_name", endless_server.model))
    name = ("vllm:request_success_total", *labels)
    before = samples(endless_server)
    fields = {**ENDLESS, "n": 2}
    with httpx.stream("POST", f"{endless_server.url}{COMPLETIONS}", json=fields) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        endless_server.wait_for_gauges(live_requests=2, waiting_requests=0)
        found = samples(endless_server)
        assert found["vllm:num_requests_running", labels[0], labels[2]] == 2
    endless_server.wait_until_idle()
    assert samples(endless_server)[name] == before[name] + 2


def test_gauges(server, client) -> None:
    fields = {"max_tokens": NUM_TOKENS, "extra_body": {"ignore_eos": True}}
    client.completions.create(model=MODEL, prompt=QUESTION, **fields)
    server.wait_until_idle()
    found = server.gauges()
    assert found["model"] == MODEL
    assert DEVICE_NAMES[device_kind()] in found["device"]
    assert found["tokens_per_second"] > 0
    assert found["prompt_tokens_per_second"] > 0
    assert 0 < found["ttft_ms"]["p50"] <= found["ttft_ms"]["p90"] <= found["ttft_ms"]["p99"]
    assert 0 < found["inter_token_ms"]["p50"] <= found["inter_token_ms"]["p99"]
    assert found["kv_utilisation"] == found["batch_occupancy"] == found["live_requests"] == 0
    assert found["max_queue"] == 1024
    assert not found["is_draining"]


def test_log_lines(server) -> None:
    fields = {"prompt": QUESTION, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    answer = server.http.post(COMPLETIONS, json=fields)
    request_id = answer.headers["x-request-id"]
    assert answer.json()["id"] == f"cmpl-{request_id}"
    server.wait_until_idle()
    lines = [line for line in server.log().splitlines() if request_id in line]
    assert len(lines) == 1
    line = json.loads(lines[0])
    assert line["event"] == "request"
    assert line["endpoint"] == COMPLETIONS
    assert line["status"] == 200
    assert line["prompt_tokens"] == 5
    assert line["completion_tokens"] == NUM_TOKENS
    assert line["finish_reason"] == "length"
    assert 0 < line["ttft_ms"] < line["seconds"] * 1000
    assert line["tokens_per_second"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", line["timestamp"])
    assert QUESTION not in server.log()


@pytest.mark.parametrize("given", ["req-1", "0" * 128, "a/b:c d"])
def test_the_id_of_a_request_is_kept(server, given) -> None:
    for path in (COMPLETIONS, "/v1/nothing"):
        headers = {"x-request-id": given}
        answer = server.http.post(path, json={"prompt": QUESTION}, headers=headers)
        assert answer.headers["x-request-id"] == answer.headers["request-id"] == given
    answer = server.http.post(COMPLETIONS, json={"prompt": QUESTION}, headers=headers)
    assert answer.json()["id"] == f"cmpl-{given}"
    server.wait_for_log(json.dumps({"request_id": given})[1:-1].replace(": ", ":"), 3)


@pytest.mark.parametrize("given", ["", "0" * 129, b"caf\xe9", b"a\tb"])
def test_what_is_no_id_is_replaced(server, given) -> None:
    answer = server.http.get("/v1/models", headers={"x-request-id": given})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


@pytest.mark.skipif(device_kind() != "cpu", reason="a GPU's buffers do not fit 30 MB")
def test_a_context_that_the_memory_of_a_file_cuts_is_logged_and_listed(start_server, tmp_path):
    path = tmp_path / "glm.toml"
    path.write_text('[serve]\nmemory-limit = "30MB"\nserved-model-name = ["one", "two"]\n')
    server = start_server("--config", path)
    listed = server.http.get("/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["one", "two"]
    assert 512 <= listed[0]["max_model_len"] < 4096
    [line] = [one for one in server.log().splitlines() if "limited by memory" in one]
    event = json.loads(line)
    assert event["level"] == "warning"
    assert event["event"].startswith(f"context length: {listed[0]['max_model_len']:,} tokens")

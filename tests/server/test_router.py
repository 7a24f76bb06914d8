"""Three servers behind vLLM's router: one is killed, one is told to end, nobody notices."""

import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import httpx
import pytest

from tests import groups
from tests.reference.capitals import countries
from tests.server.raw import connect, send_half_a_body
from tests.server.serving import ENVIRONMENT, PATIENCE_SECONDS, ROOT, ServerProcess, held_port
from tests.server.test_kv_events import ANNOUNCED, ANY_PORT, last_published

NUM_SERVERS, NUM_CLIENTS, NUM_BODIES, NUM_ROUNDS = 3, 12, 100, 3
COMPLETIONS = "/v1/completions"
COMMAND = (sys.executable, "-m", "vllm_router.launch_router")
READINESS = ("--health-check-endpoint", "/readyz", "--health-check-interval-secs", 1)
PATIENCE = ("--health-check-timeout-secs", PATIENCE_SECONDS, "--health-failure-threshold", 1)
RETRIES = ("--retry-max-retries", 10, "--cb-failure-threshold", 2)
RECOVERY = ("--cb-timeout-duration-secs", 2)
README = ROOT / "python" / "glm_engine" / "server" / "README.md"
MOST_RECOVERY_SECONDS = 10
LONG_DRAIN = ("--drain-seconds", 10 * PATIENCE_SECONDS)
QUESTIONS = [entry["prompt"] for entry in countries()]
PAGE_SIZE = 16
COLOURS = re.compile(r"\x1b\[\d+m")

pytestmark = groups.needs("vllm_router")


class Router:
    """A running vllm-router that follows the KV events of its servers."""

    def __init__(self, folder, servers, port, metrics_port):
        self.log_path = folder / "router.log"
        arguments = [*COMMAND, "--port", port, "--prometheus-port", metrics_port]
        arguments += [*READINESS, *PATIENCE, *RETRIES, *RECOVERY, "--log-level", "debug"]
        arguments += ["--policy", "kv_aware", "--kv-event-model", servers[0].model]
        arguments += ["--worker-urls", *(server.url for server in servers)]
        for server in servers:
            published, replayed = ANNOUNCED.search(server.log()).groups()
            arguments += ["--kv-event-source", f"{server.url}={published}"]
            arguments += ["--kv-event-replay-source", f"{server.url}={replayed}"]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                list(map(str, arguments)),
                cwd=ROOT,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False
        )

    def log(self):
        return COLOURS.sub("", self.log_path.read_text(encoding="utf-8"))

    def wait_for(self, is_so):
        """Wait until a function of this router says so."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not is_so(self):
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.05)

    def is_ready(self):
        try:
            return self.http.get("/readiness").status_code == 200
        except httpx.TransportError:
            return False

    def healthy(self):
        """The URLs of the servers that it would send a request to."""
        found = self.http.get("/workers").json()["workers"]
        return {one["url"] for one in found if one["is_healthy"]}

    def stop(self):
        self.http.close()
        self.process.terminate()
        self.process.wait(PATIENCE_SECONDS)


@pytest.fixture
def servers(tmp_path):
    folders = [tmp_path / f"serve{number}" for number in range(NUM_SERVERS)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(NUM_SERVERS) as starting:
        made = list(
            starting.map(lambda folder: ServerProcess(folder, *ANY_PORT, *LONG_DRAIN), folders)
        )
    yield made
    for server in made:
        server.stop()


@contextmanager
def routed(folder, servers):
    """Yield a router before these servers."""
    with held_port() as port, held_port() as metrics_port:
        made = Router(folder, servers, port, metrics_port)
        try:
            made.wait_for(Router.is_ready)
            yield made
        finally:
            made.stop()


@pytest.fixture
def router(servers, tmp_path):
    with routed(tmp_path, servers) as made:
        yield made


def body(number):
    """A question, another one for each number, every other one drawn at random."""
    return {
        "model": "capitals",
        "prompt": QUESTIONS[number % len(QUESTIONS)],
        "max_tokens": 12,
        "ignore_eos": True,
        "temperature": number % 2,
        "seed": number,
    }


def ask(client, fields):
    answer = client.post(COMPLETIONS, json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer):
    return answer["choices"][0]["text"]


def test_behind_a_router_prompts_find_their_beginning_and_no_request_is_lost(
    servers, router
) -> None:
    check_that_prompts_find_their_beginning(servers, router)
    killed, drained, kept = servers
    bodies = [body(number) for number in range(NUM_BODIES)]
    with connect(drained) as holding, ThreadPoolExecutor(NUM_CLIENTS) as clients:
        send_half_a_body(holding, COMPLETIONS)
        alone = [text_of(one) for one in clients.map(partial(ask, kept.http), bodies)]
        asked = [clients.submit(ask, router.http, one) for one in NUM_ROUNDS * bodies]
        wait_for_third(asked, 1)
        killed.send_signal(signal.SIGKILL)
        wait_for_third(asked, 2)
        drained.send_signal(signal.SIGTERM)
        texts = [text_of(one.result()) for one in asked]
        router.wait_for(lambda one: one.healthy() == {kept.url})
        assert drained.process.poll() is None
    assert texts == NUM_ROUNDS * alone
    assert drained.wait() == 0
    assert min(num_answered(one) for one in (killed, drained)) > 0
    assert router.log().count("Failed to send typed request") > 0


def test_a_server_that_is_killed_and_begun_again_has_its_traffic_soon(tmp_path) -> None:
    """Twice, and with nobody else to ask, as the README's flags say it."""
    with held_port() as port, held_port() as events, held_port() as replay:
        told = ("--kv-events", f"tcp://127.0.0.1:{events}")
        told += ("--kv-events-replay", f"tcp://127.0.0.1:{replay}")
        server = ServerProcess(tmp_path, "--port", port, *told)
        try:
            with routed(tmp_path, [server]) as router:
                expected = text_of(ask(router.http, body(0)))
                for _ in range(2):
                    server.send_signal(signal.SIGKILL)
                    server.wait()
                    statuses = [post(router, body(number)) for number in range(3)]
                    assert 200 not in statuses
                    server = ServerProcess(tmp_path, "--port", port, *told)
                    wait_for_traffic(router)
                    assert [text_of(ask(router.http, body(0))) for _ in range(8)] == [expected] * 8
        finally:
            server.stop()


def post(router, fields):
    return router.http.post(COMPLETIONS, json=fields).status_code


def wait_for_traffic(router):
    began = time.monotonic()
    while post(router, body(0)) != 200:
        assert time.monotonic() - began < MOST_RECOVERY_SECONDS, router.log()
        time.sleep(0.1)


def test_the_readme_says_the_flags_that_are_tested() -> None:
    flags = [str(one) for one in (*READINESS, *PATIENCE[2:], *RETRIES, *RECOVERY)]
    text = " ".join(README.read_text(encoding="utf-8").replace("\\\n", " ").split())
    assert " ".join(flags) in text


def check_that_prompts_find_their_beginning(servers, router):
    """What each server was asked alone, the router sends to that server."""
    questions = [f"{at}. {' '.join(QUESTIONS[at::40])}" for at in range(3 * NUM_SERVERS)]
    for at, question in enumerate(questions):
        ask(servers[at % NUM_SERVERS].http, {"prompt": question, "max_tokens": 1})
    told = [
        f"live sequence advanced source={server.url} rank=0 seq={last_published(server)}\n"
        for server in servers
    ]
    router.wait_for(lambda one: all(map(one.log().count, told)))
    for question in questions:
        usage = ask(router.http, {"model": "capitals", "prompt": question, "max_tokens": 1})[
            "usage"
        ]
        whole_pages = (usage["prompt_tokens"] - 1) // PAGE_SIZE * PAGE_SIZE
        assert usage["prompt_tokens_details"]["cached_tokens"] == whole_pages > 0


def wait_for_third(asked, number):
    while sum(one.done() for one in asked) < number * len(asked) // NUM_SERVERS:
        time.sleep(0.005)


def num_answered(server):
    return server.log().count(f'"endpoint":"{COMPLETIONS}","status":200')

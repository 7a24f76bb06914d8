"""A rank hangs under a server: requests in flight say which, probes see it, the server ends.

The server's engine.so lies beside the device of `tests/engine/failing/`, armed by the environment.
"""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from glm_engine.core.errors import ExitCode
from tests.engine.failing_device import FOLDER, INNER
from tests.engine.probes import ROOT
from tests.server.serving import ENDLESS

RANK, CALL = 1, 60


def disturbed(folder):
    """The environment of a server, one of whose ranks hangs in a later step."""
    for name, target in (
        ("engine.so", ROOT / "build" / "engine.so"),
        ("libglm_cpu.so", FOLDER / "libglm_cpu.so"),
    ):
        shutil.copyfile(target, folder / name)
    settings = {"INNER": INNER, "RANK": RANK, "OPERATION": "embed", "CALL": CALL, "HANGS": 1}
    environment = {f"FAILING_{name}": str(value) for name, value in settings.items()}
    return {**environment, "GLM_ENGINE_LIBRARY": str(folder / "engine.so")}


def last_event(server):
    """The last event of a stream that the server ends."""
    with server.http.stream("POST", "/v1/completions", json=ENDLESS) as answer:
        lines = [line for line in answer.iter_lines() if line]
    return json.loads(lines[-1].removeprefix("data: "))


def test_a_server_with_a_lost_rank_says_so_and_ends(start_server, endless_model, tmp_path):
    options = ("--device", "cpu", "--world-size", 2)
    environment = disturbed(tmp_path)
    server = start_server(*endless_model, *options, environment=environment)
    assert server.http.get("/readyz").status_code == 200
    began = time.monotonic()
    with ThreadPoolExecutor() as clients:
        ends = list(clients.map(lambda _: last_event(server), range(3)))
    print(f"requests ended after {time.monotonic() - began:.2f} s")
    for end in ends:
        words = f"embed failed on rank {RANK}: the call has not returned"
        assert words in end["error"]["message"]
    assert server.http.get("/readyz").status_code == 503
    refused = server.http.post("/v1/completions", json={**ENDLESS, "stream": False})
    assert refused.status_code == 503
    assert "embed failed on rank" in refused.json()["error"]["message"]
    server.wait_for_log("glm: the engine has failed; the server exits in")
    assert server.wait() == ExitCode.ENGINE

"""Every fault of a pull is one line with its exit code, and leaves nothing half made."""

import fcntl
import json
import re
import socket
import time
from functools import partial

import httpx2
import pytest
from huggingface_hub import constants, get_session

from glm_engine.hub import client
from glm_engine.hub.client import open_hub
from tests.python.hub.hub_server import CutError
from tests.python.hub.repositories import random_model
from tests.python.hub.running import assert_nothing_half_made, assert_pulled, bytes_here

FIRST_SHARD = "model-0-of-3.safetensors"


def failed(nursery, name, *arguments, code=1, **wanted):
    """Pull what must not come; return the one line, after a look at what was left."""
    ended = nursery.run("pull", name, *arguments, **wanted)
    line = ended.line()
    assert ended.code == code, line
    storage = nursery.storage(name)
    assert_nothing_half_made(storage)
    assert not list(storage.glob("snapshots/*/*"))
    assert not (storage / "glm.json").exists()
    return line


def test_a_model_that_is_not_there(hub, nursery, name):
    line = failed(nursery, name)
    assert line == (
        f"glm: {name}: {hub.endpoint} has no such model, or you do not have access "
        "to it (status 401). "
        "For a private model, set HF_TOKEN to a token with access.\n"
    )
    assert "(status 404)" in failed(nursery, name, HF_TOKEN="hf_of_somebody")


@pytest.mark.parametrize("token", ["wrong", "hf_of_somebody_else", None])
def test_a_private_model_without_its_token(hub, nursery, name, token):
    hub.repositories[name] = random_model(name, token="hf_right")
    line = failed(nursery, name, **({"HF_TOKEN": token} if token else {}))
    assert "HF_TOKEN" in line
    assert hub.bytes_sent == 0


def test_a_gated_model(hub, nursery, name):
    hub.repositories[name] = random_model(name, is_gated=True)
    line = failed(nursery, name)
    assert f"{name} is gated: request access at {hub.endpoint}/{name}, then set HF_TOKEN" in line


def test_a_revision_that_is_not_there(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    assert f"{hub.endpoint} has no revision 'v9' of this model" in failed(
        nursery, name, "--revision", "v9"
    )


def test_a_repository_that_is_no_checkpoint(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    del repository.files["config.json"]
    assert "expected config.json and *.safetensors files" in failed(nursery, name)


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (FIRST_SHARD, "flipped"),
        (FIRST_SHARD, "longer"),
        (FIRST_SHARD, "shorter"),
        ("config.json", "flipped"),
    ],
)
def test_wrong_bytes_get_no_name(hub, nursery, name, path, wrong):
    hub.repositories[name] = repository = random_model(name)
    repository.files["config.json"] = b'{"model_type": "glm4_moe"}'
    right = repository.files[path]
    repository.listed[path] = right
    changed = bytes([right[0] ^ 1]) + right[1:]
    sent = {"flipped": changed, "longer": right + b"x", "shorter": right[:-1]}[wrong]
    repository.files[path] = sent
    line = failed(nursery, name)
    said = "416" if wrong == "shorter" else f"{path} does not match the hub's listing (sha"
    assert said in line or f"{path} ended after {len(sent)} of {len(right)} bytes" in line
    repository.files[path] = right
    nursery.run("pull", name)
    assert_pulled(nursery.pull(name), repository)


def test_a_disk_that_fills_while_bytes_come(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name, 300_000)
    line = failed(nursery, name, limit=100_000)
    assert line == f"glm: {name}: {nursery.storage(name)}: File too large\n"
    here = bytes_here(nursery.storage(name))
    assert here >= 100_000
    report = nursery.pull(name)
    assert_pulled(report, repository)
    assert report["fetched_bytes"] == report["total_bytes"] - here


def test_a_disk_that_cannot_hold_a_model_is_asked_first(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    rows = repository.rows()
    rows[-1]["lfs"]["size"] = 10**18
    tree = f"/api/models/{name}/tree/{repository.commit}?recursive=false&expand=false"
    hub.behaviour.bodies[tree] = json.dumps(rows).encode()
    line = failed(nursery, name)
    assert f"{name}: not enough disk space in {nursery.home / 'hub'}: the download needs " in line
    assert re.search(
        r"needs 1000\.0 PB, but only \d+\.\d [MGT]B is free\. Free some space, or set", line
    )
    assert hub.bytes_sent == len(repository.files["config.json"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>log in to the hotel</html>", "invalid response from http://127.0.0.1"),
        (b"[]", "invalid response from http://127.0.0.1"),
        (b'{"id": "a"}', "expected a commit with 40 hexadecimal digits, got None"),
        (b'{"id": "a", "sha": "../../../../tmp"}', "expected a commit with 40 hexadecimal digits"),
    ],
)
def test_a_hub_that_answers_nonsense(hub, nursery, name, body, message):
    hub.repositories[name] = random_model(name)
    hub.behaviour.bodies[f"/api/models/{name}/revision/main"] = body
    assert message in failed(nursery, name)


def send_without_an_end(handler, begin, piece, pause=0.0, **headers):
    handler.send_headers(200, Content_Type="application/json", **headers)
    handler.wfile.write(begin)
    while True:
        handler.wfile.write(piece)
        time.sleep(pause)


def redirect_to_itself(handler):
    handler.redirect(307, handler.path, Connection="close")


def say_that_more_comes(handler):
    """One entry on each page, and always a next page."""
    if "/revision/" in handler.path:
        handler.send_json({"id": "a", "sha": "a" * 40})
        return
    row = {"type": "file", "oid": "b" * 40, "size": 1, "path": "a" * 200 + ".safetensors"}
    path = f"http://{handler.headers['Host']}/api/models/a/b/tree/main?cursor={handler.path[-9:]}1"
    handler.send_json([row], Link=f'<{path}>; rel="next"')


def send_headers_without_an_end(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        handler.wfile.write(b"X-More: " + b"x" * 1000 + b"\r\n")


def go_on_to_continue(handler):
    while True:
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")


def refuse_without_an_end(handler):
    handler.send_response(500)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            partial(send_without_an_end, begin=b"[", piece=b'{"a": 1},' * 9999),
            "the model's file list is too long: expected at most 16 MiB",
        ),
        (say_that_more_comes, "expected at most 16 MiB in 1024 responses"),
        (refuse_without_an_end, "the model's file list is too long: expected at most 16 MiB"),
        (redirect_to_itself, "Exceeded maximum allowed redirects"),
        (send_headers_without_an_end, "cannot reach http"),
        (
            partial(send_without_an_end, begin=b"", piece=b"\0" * 99, Content_Encoding="gzip"),
            "expected no Content-Encoding, got 'gzip'",
        ),
    ],
)
def test_a_hub_that_never_ends(hub, nursery, name, answers, message):
    hub.behaviour.answers = answers
    assert message in failed(nursery, name)


@pytest.mark.parametrize(
    "answers", [go_on_to_continue, partial(send_without_an_end, begin=b"", piece=b" ", pause=0.01)]
)
def test_a_hub_that_is_slow_without_an_end(hub, monkeypatch, answers):
    monkeypatch.setattr(client, "MOST_SECONDS", 1.0)
    hub.behaviour.answers = answers
    client.open_hub()
    with pytest.raises(client.HubError, match="did not list the model's files within 1 s"):
        client.in_time(get_session().get, f"{hub.endpoint}/api/models/a/b")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"sha": "a", "lastModified": "9999999-99-99"}',
        b'{"sha": "a", "lastModified": 1e999}',
        b'{"sha": 1' + b"0" * 5000 + b"}",
        b'{"id": [], "siblings": 7, "sha": {}}',
        b'"\\ud800"',
        b"\xff\xfe",
        b"",
    ],
)
@pytest.mark.parametrize("place", ["revision", "tree"])
def test_a_hub_whose_json_is_none_or_of_another_kind(hub, nursery, name, body, place):
    hub.repositories[name] = repository = random_model(name)
    paths = {
        "revision": f"/api/models/{name}/revision/main",
        "tree": f"/api/models/{name}/tree/{repository.commit}?recursive=false&expand=false",
    }
    hub.behaviour.bodies[paths[place]] = body
    line = failed(nursery, name)
    assert len(line) < 1000
    assert "unexpected" not in line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row.update(path="../../../evil.safetensors"), "not a checkpoint"),
        (
            lambda row: row["lfs"].update(oid="../../../evil"),
            "an invalid digest or size: '../../../evi",
        ),
        (lambda row: row["lfs"].update(size="1"), ", '1'"),
        (lambda row: row["lfs"].update(size=-1), ", -1"),
        (lambda row: row.pop("path"), ": KeyError: 'path'"),
    ],
)
def test_a_tree_that_is_hostile(hub, nursery, name, change, message):
    hub.repositories[name] = repository = random_model(name)
    rows = [row for row in repository.rows() if not row["path"].startswith("model-1")]
    rows = [row for row in rows if not row["path"].startswith("model-2")]
    change(rows[-1])
    tree = f"/api/models/{name}/tree/{repository.commit}?recursive=false&expand=false"
    hub.behaviour.bodies[tree] = json.dumps(rows).encode()
    assert message in failed(nursery, name)
    assert hub.bytes_sent == 0


def test_a_network_that_goes_away(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name, 300_000)

    def cut(sent):
        if sent >= 250_000:
            raise CutError

    hub.behaviour.before_piece = cut
    assert f"cannot reach {hub.endpoint}: " in failed(nursery, name)
    hub.reset()
    report = nursery.pull(name)
    assert_pulled(report, repository)
    assert report["fetched_bytes"] < report["total_bytes"] - 200_000


def test_no_request_waits_for_ever(monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    open_hub()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(httpx2.TimeoutException):
            get_session().get(address, timeout=None)


def test_a_second_pull_at_the_same_time(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    nursery.storage(name).mkdir(parents=True)
    with (nursery.storage(name) / "glm.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"{name}: already being downloaded by another process" in failed(nursery, name)
    nursery.pull(name)


@pytest.mark.parametrize(
    "wrong",
    ["GLM", "a/b/c", "../a", "a/..", "/a", "a/", "a--b/c", "a/b.git", "a b/c", "é/b", "-a/b"],
)
def test_what_is_no_name(nursery, wrong):
    ended = nursery.run("pull", "--", wrong)
    assert (ended.code, ended.line()) == (
        2,
        f"glm: {wrong}: not a model name; expected ORG/NAME\n",
    )


@pytest.mark.parametrize("wrong", ["../main", "a..b", "/main", "a b", "-x"])
def test_what_is_no_revision(nursery, name, wrong):
    ended = nursery.run("pull", name, f"--revision={wrong}")
    assert (ended.code, ended.line()) == (
        2,
        f"glm: {wrong!r}: invalid revision; expected a branch, tag or commit\n",
    )


@pytest.mark.parametrize("arguments", [["pull", ""], ["pull", "a/b", "--revision", ""]])
def test_empty_values(nursery, arguments):
    ended = nursery.run(*arguments)
    assert ended.code == 2
    assert "expected a value, got an empty string" in ended.line()


def test_without_a_network_what_is_here_serves(hub, nursery, name):
    """Other variables need a process of their own: huggingface_hub reads them when imported."""
    hub.repositories[name] = random_model(name)
    report = nursery.pull(name)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
    unreachable = nursery.alone("pull", name, HF_ENDPOINT=closed)
    assert unreachable.code == 1
    assert f"cannot reach {closed}: [Errno 111] Connection refused" in unreachable.line()
    unfinished = nursery.alone("pull", name, HF_ENDPOINT=closed.removeprefix("http://"))
    assert "protocol. HF_ENDPOINT must begin with http:// or https://." in unfinished.line()
    offline = nursery.alone("pull", name, "--json", HF_ENDPOINT=closed, HF_HUB_OFFLINE="1")
    assert json.loads(offline.out) == {**report, "fetched_bytes": 0, "checked": False}
    absent = nursery.alone("pull", f"{name}-absent", HF_HUB_OFFLINE="1")
    assert (absent.code, "HF_HUB_OFFLINE" in absent.line()) == (1, True)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HF_HOME", "", "HF_HOME: expected a value"),
        ("HF_TOKEN", "", "HF_TOKEN: expected a value"),
        ("HF_TOKEN", "hf_\u00e9", "the token in HF_TOKEN or in the token file is not ASCII"),
        (
            "SSL_CERT_FILE",
            "/absent.pem",
            "cannot load TLS certificates (SSL_CERT_FILE, SSL_CERT_DIR): ",
        ),
    ],
)
def test_variables_that_lead_nowhere(nursery, name, variable, value, message):
    ended = nursery.run("pull", name, **{variable: value})
    assert ended.code == (1 if variable.startswith("SSL") else 2)
    assert message in ended.line()


def test_a_variable_that_huggingface_hub_cannot_read(nursery, name):
    ended = nursery.alone("pull", name, HF_HUB_DOWNLOAD_TIMEOUT="soon")
    assert ended.code == 2
    assert "invalid HF_HUB_* variable: invalid literal for int()" in ended.line()

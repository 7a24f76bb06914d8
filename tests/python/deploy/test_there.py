"""`glm deploy` on Modal as far as it goes without Modal: what its client sends, over a socket."""

import contextlib
import gc
import json
import os

import pytest

from glm_engine.cli import command_line
from glm_engine.deploy import stages
from glm_engine.deploy.job import Job
from glm_engine.deploy.on_modal import BUILDER_VARIABLE, module
from glm_engine.version import VERSION
from tests import groups
from tests.python.deploy.running import ROOT, deployment, wheel_in

modal = groups.imported("modal")
GOLDEN = ROOT / "tests" / "python" / "deploy" / "golden"
DEPLOYING = [stage.name for stage in stages.PIPELINE]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """No token, no profile and no setting of whoever runs the tests. What Modal's client leaves
    behind is collected here, not amid another test, which asyncio would disturb with its report."""
    for name in [name for name in os.environ if name.startswith("MODAL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MODAL_CONFIG_PATH", str(tmp_path / "modal.toml"))
    monkeypatch.delenv("GLM_MODEL", raising=False)
    yield
    gc.collect()


@pytest.fixture
def app_module(monkeypatch):
    made = module("glm_engine.deploy.modal_app")
    monkeypatch.setenv(BUILDER_VARIABLE, os.environ[BUILDER_VARIABLE])
    return made


def printed_by(arguments, capsys):
    assert command_line.main(["deploy", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("gpu", ["B200:8", "H200:4"])
def test_what_would_be_sent_is_the_golden_page(gpu, tmp_path, capsys):
    chosen = [] if gpu == "B200:8" else ["--gpu", gpu]
    wheel = str(wheel_in(tmp_path))
    page = printed_by(["benchmark", "--dry-run", "--wheel", wheel, *chosen], capsys)
    assert page == (GOLDEN / f"{gpu.replace(':', '-')}.txt").read_text(encoding="utf-8")


def test_every_declared_function_is_called_and_its_body_is_the_local_one(app_module, tmp_path):
    chosen = deployment(tmp_path)
    sent = module("glm_engine.deploy.there").dry_run(chosen, stages.PIPELINE, stays=False)
    bodies = {one["name"]: one["body"] for one in sent["functions"]}
    assert list(bodies) == [*DEPLOYING, "Serve.*"] == app_module.make_app(chosen).names()
    assert sent["calls"] == DEPLOYING
    assert bodies.pop("Serve.*") == "glm_engine.deploy.modal_app.Serve.*"
    assert bodies.pop("download") == "glm_engine.deploy.modal_app.download"
    assert bodies == {
        stage.name: f"{stage.body.__module__}.{stage.body.__qualname__}"
        for stage in stages.PIPELINE
        if stage.name in bodies
    }


def test_the_class_serves_through_modals_own_steps(app_module, tmp_path, monkeypatch):
    job = Job("capitals", device="cpu", host="127.0.0.1", port=0)
    for name, value in job.environment().items():
        monkeypatch.setenv(name, value)
    started = []
    start = app_module.WarmServer.start

    def keep(server):
        started.append(server)
        start(server)

    monkeypatch.setattr(app_module.WarmServer, "start", keep)
    container = app_module.make_app(deployment(tmp_path, job)).server()
    with pytest.warns(UserWarning, match="executing locally"):
        container.web.local()
    (server,) = started
    server.drain()
    assert server.port
    assert server.wait() == 0


@contextlib.contextmanager
def recorded(monkeypatch, **more):
    """Let Modal's client talk to a recorder that gives these answers too."""
    recorder = module("glm_engine.deploy.recorder")
    with recorder.Recorder({**recorder.ANSWERS, **more}) as recording:
        monkeypatch.setenv("MODAL_SERVER_URL", f"unix://{recording.path}")
        monkeypatch.setenv("MODAL_TOKEN_ID", "ak-test")
        monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-test")
        try:
            yield recording
        finally:
            modal.Client.from_env().close()


def test_a_server_is_deployed_and_its_address_printed(tmp_path, capsys, monkeypatch):
    with recorded(monkeypatch) as recording:
        wheel = str(wheel_in(tmp_path))
        printed = printed_by(["serve", "--only", "--app", "mine", "--wheel", wheel], capsys)
    assert printed.splitlines()[-1] == "https://mine.web.invalid"
    (published,) = [one for name, one, _ in recording.requests if name == "AppPublish"]
    assert published.name == "mine"
    assert set(published.function_ids) == {*DEPLOYING, "Serve.*"}


def test_logs_are_printed_as_they_were_written(capsys, monkeypatch):
    lines = ['{"event": "shards"}\n', '{"event": "engine_loaded"}\n']
    api_pb2 = module("modal_proto.api_pb2")
    batch = api_pb2.TaskLogsBatch(items=[api_pb2.TaskLogs(data=line) for line in lines])
    answers = {
        "AppGetOrCreate": lambda _: {"app_id": "ap-test"},
        "AppFetchLogs": lambda _: {"batches": [batch]},
    }
    with recorded(monkeypatch, **answers) as recording:
        assert printed_by(["logs", "--entries", "2"], capsys) == "".join(lines)
    looked_up = recording.requests[0][1]
    assert looked_up.app_name == "glm-engine"


def test_a_download_is_committed_to_its_volume(app_module, monkeypatch):
    with recorded(monkeypatch) as recording:
        report = app_module.download(Job("capitals"))
    assert report["fetched_bytes"] == 0
    asked = [(name, request) for name, request, _ in recording.requests]
    assert [name for name, _ in asked][:2] == ["VolumeGetOrCreate", "VolumeCommit"]
    assert asked[0][1].deployment_name == app_module.CHECKPOINT_VOLUME


def test_sources_build_the_wheel_with_a_cache_in_a_volume(capsys):
    sent = json.loads(printed_by(["serve", "--dry-run", "--ship", "source", "--json"], capsys))
    tracked = {f"/glm-engine/{name}" for name in ("SConstruct", "tools/develop", "pyproject.toml")}
    assert tracked <= {one["path"] for one in sent["files"]}
    folders = {one["path"].split("/")[2] for one in sent["files"]}
    assert not folders & {".git", ".toolchain", "build"}
    (built,) = [layer for layer in sent["image"] if layer["volumes"]]
    assert built["volumes"] == {"/build-cache": "glm-build"}
    assert "tools/develop --with cuda scons wheel" in built["commands"][-1]
    assert sent["state"] == "APP_STATE_DEPLOYED"
    assert sent["calls"] == ["download", "build"]


def test_an_installed_wheel_is_installed_by_name(capsys, monkeypatch):
    monkeypatch.setattr("glm_engine.deploy.deployment.IS_WHEEL", True)
    page = printed_by(["plan", "--dry-run"], capsys)
    assert f"RUN python -m pip install --no-cache-dir glm-engine=={VERSION}\n" in page
    assert "\nfiles\n  none\n" in page
    assert page.splitlines()[-1].startswith(f"The image installs glm-engine=={VERSION} from the")


def test_secrets_go_by_name_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf-very-secret")
    monkeypatch.setenv("GLM_API_KEYS", "key-very-secret")
    wheel = str(wheel_in(tmp_path))
    asked = ["serve", "--dry-run", "--wheel", wheel, "--hub-secret", "hub", "--json"]
    printed = printed_by(asked, capsys)
    sent = {one["name"]: one["secrets"] for one in json.loads(printed)["functions"]}
    assert sent["download"] == [{"name": "hub", "keys": ["HF_TOKEN"]}]
    assert {"name": "glm-api-keys", "keys": ["GLM_API_KEYS"]} in sent["Serve.*"]
    assert "very-secret" not in printed


def refusal(arguments, capsys):
    assert command_line.main(["deploy", *arguments]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize("name", ["smoke", "serve"])
def test_a_missing_token_is_one_line(name, tmp_path, capsys):
    line = refusal([name, "--wheel", str(wheel_in(tmp_path))], capsys)
    assert line.startswith("glm: Modal: Token missing")


def test_a_missing_network_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module("glm_engine.deploy.there"), "CONNECT_SECONDS", 0.3)
    monkeypatch.setenv("MODAL_SERVER_URL", f"unix://{tmp_path}/nobody")
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-test")
    monkeypatch.setenv("MODAL_TOKEN_SECRET", "as-test")
    for arguments in (["smoke", "--wheel", str(wheel_in(tmp_path))], ["logs"]):
        line = refusal(arguments, capsys)
        assert line.startswith("glm: Modal: could not connect to unix://")

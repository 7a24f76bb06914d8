"""`glm deploy download`: a model by its name, through `glm pull`, from a hub on the loopback."""

import json

import pytest

from tests.python.deploy.running import deploy, events
from tests.python.hub.hub_server import LoopbackHub
from tests.python.hub.repositories import random_model

NAME = "zai-org/GLM-of-a-test-FP8"


@pytest.fixture
def hub():
    running = LoopbackHub()
    yield running
    running.close()


def test_a_model_comes_once_and_stays(hub, tmp_path):
    hub.repositories[NAME] = repository = random_model(NAME)
    home = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": hub.endpoint, "HF_HUB_OFFLINE": "0"}
    asked = ("download", "--local", "--model", NAME, "--revision", repository.commit)
    reports = []
    for _ in range(2):
        done = deploy(*asked, **home)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout)["download"])
    (event,) = events(done.stderr)
    assert event["event"] == "checkpoint"
    assert event["folder"] == reports[0]["folder"]
    assert [one["commit"] for one in reports] == [repository.commit] * 2
    assert reports[0]["fetched_bytes"] == reports[0]["total_bytes"] > 0
    assert reports[1]["fetched_bytes"] == 0

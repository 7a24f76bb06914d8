"""`glm list` and `glm rm`: what the cache holds, and its removal."""

import fcntl
import json
import os
import re
import subprocess

import pytest

from glm_engine.core.console import human_bytes
from tests.python.commands.running import GLM, ROOT
from tests.python.hub.repositories import capitals, random_model
from tests.python.hub.running import bytes_here
from tests.python.hub.test_on_demand import OTHER_TYPE


@pytest.fixture
def empty(tmp_path):
    """Variables of a cache that holds no model yet."""
    return {"HF_HUB_CACHE": str(tmp_path / "cache")}


def listed(nursery, name):
    """Return the row that `glm list --json` has for a model, None without one."""
    ended = nursery.run("list", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    assert found["cache"] == str(nursery.home / "hub")
    assert [one["name"] for one in found["models"]] == sorted(
        one["name"] for one in found["models"]
    )
    return {one["name"]: one for one in found["models"]}.get(name)


def test_a_model_that_was_pulled_is_ready(hub, nursery, name):
    assert listed(nursery, name) is None
    hub.repositories[name] = random_model(name)
    report = nursery.pull(name)
    row = listed(nursery, name)
    assert (row["state"], row["model_type"]) == ("ready", "glm4_moe")
    assert row["folder"] == report["folder"]
    record = os.stat(nursery.storage(name) / "glm.json")
    assert row["size_bytes"] == report["total_bytes"] + record.st_size + len(report["commit"])
    assert row["modified"] == record.st_mtime
    shown = nursery.run("list").out
    form = rf"{name} +{human_bytes(row['size_bytes'])} +\d{{4}}-\d\d-\d\d \d\d:\d\d +ready"
    assert re.search(form, shown)
    assert re.search(rf"\n\d+ models? in {nursery.home / 'hub'}, [\d.]+ [kM]B in total\n$", shown)


def test_states_of_models_that_are_not_ready(hub, nursery, name):
    hub.repositories[name] = repository = capitals()
    assert nursery.run("plan", name, "--device", "cpu").code == 0
    assert listed(nursery, name)["state"] == "config only"
    nursery.pull(name)
    (nursery.storage(name) / "glm.json").rename(nursery.storage(name) / "kept.json")
    assert listed(nursery, name)["state"] == "unchecked"
    (nursery.storage(name) / "kept.json").rename(nursery.storage(name) / "glm.json")
    shard = nursery.storage(name) / "snapshots" / repository.commit / "tokenizer.json"
    shard.unlink()
    assert listed(nursery, name)["state"] == "incomplete"
    nursery.pull(name)
    assert listed(nursery, name)["state"] == "ready"


def test_a_download_that_was_cut_is_listed_as_incomplete(hub, nursery, name):
    hub.repositories[name] = random_model(name, 300_000)
    assert nursery.run("pull", name, limit=100_000).code == 1
    row = listed(nursery, name)
    assert (row["state"], row["folder"]) == ("incomplete", None)
    assert row["size_bytes"] == bytes_here(nursery.storage(name)) > 100_000


def test_a_model_of_another_tool_is_listed_as_unsupported(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    report = nursery.pull(name)
    (nursery.storage(name) / "glm.json").unlink()
    (nursery.storage(name) / "blobs" / repository.entry("config.json")["oid"]).write_bytes(
        OTHER_TYPE
    )
    row = listed(nursery, name)
    assert (row["state"], row["model_type"]) == ("unsupported", "qwen3_moe")
    assert row["folder"] == report["folder"]
    assert re.search(rf"{name} .* unsupported \(qwen3_moe\)\n", nursery.run("list").out)


def test_a_model_that_was_refused_is_not_listed(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    repository.files["config.json"] = OTHER_TYPE
    assert nursery.run("pull", name).code == 2
    assert listed(nursery, name) is None


def test_an_empty_cache(nursery, empty):
    ended = nursery.alone("list", **empty)
    folder = empty["HF_HUB_CACHE"]
    line = f"No models in {folder}. `glm pull ORG/NAME` downloads one.\n"
    assert (ended.code, ended.out, ended.err) == (0, line, "")
    assert json.loads(nursery.alone("list", "--json", **empty).out) == {
        "cache": folder,
        "models": [],
    }
    refused = nursery.alone("rm", "--yes", "a/b", **empty)
    assert (refused.code, refused.line()) == (
        2,
        f"glm: a/b: not in {folder}. The cache has no model.\n",
    )


def test_removal_frees_the_space_and_says_how_much(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    nursery.pull(name)
    size = listed(nursery, name)["size_bytes"]
    ended = nursery.run("rm", name, "--yes")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"Removed {name}: {human_bytes(size)} freed.\n"
    assert not nursery.storage(name).exists()
    nursery.pull(name)
    report = json.loads(nursery.run("rm", "-y", name, name, "--json").out)
    assert report == {"removed": [{"name": name, "freed_bytes": size}]}
    assert not nursery.storage(name).exists()


def test_a_wrong_name_removes_none_and_lists_the_others(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    nursery.pull(name)
    refused = nursery.run("rm", "--yes", name, f"{name}-absent")
    assert refused.code == 2
    line = refused.line()
    assert line.startswith(f"glm: {name}-absent: not in {nursery.home / 'hub'}. The cache has: ")
    assert re.search(rf"[ ,]{name}[,.]", line)
    assert nursery.storage(name).exists()


def test_a_model_that_is_being_downloaded_stays(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    nursery.pull(name)
    with (nursery.storage(name) / "glm.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = nursery.run("rm", "--yes", name)
    line = f"glm: {name}: not removed: being downloaded by another process\n"
    assert (refused.code, refused.line()) == (1, line)
    assert nursery.storage(name).exists()


def test_without_a_terminal_removal_needs_yes(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    nursery.pull(name)
    refused = nursery.run("rm", name)
    assert refused.code == 2
    assert "standard input is not a terminal: pass --yes" in refused.line()
    assert nursery.storage(name).exists()


def test_the_shell_completes_names_of_models_that_are_here(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    nursery.pull(name)
    words = {"COMP_WORDS": f"glm rm {name[:-3]}", "COMP_CWORD": "2"}
    ended = nursery.alone(_GLM_COMPLETE="bash_complete", **words)
    assert f"plain,{name}" in ended.out.splitlines()


@pytest.mark.parametrize(("answer", "stays"), [("y\n", False), ("n\n", True), ("\n", True)])
def test_a_terminal_is_asked(hub, nursery, name, answer, stays):
    hub.repositories[name] = random_model(name)
    nursery.pull(name)
    size = human_bytes(listed(nursery, name)["size_bytes"])
    master, slave = os.openpty()
    try:
        os.write(master, answer.encode())
        ended = subprocess.run(
            [*GLM, "rm", name],
            cwd=ROOT,
            env=nursery.environment,
            stdin=slave,
            capture_output=True,
            text=True,
            timeout=120,
        )
    finally:
        os.close(slave)
        os.close(master)
    assert f"Delete {name} ({size})? [y/N]" in ended.stderr
    assert nursery.storage(name).exists() is stays
    assert ended.returncode == int(stays)

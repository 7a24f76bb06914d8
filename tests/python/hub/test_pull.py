"""`glm pull` through the real huggingface_hub, from a hub on the loopback."""

import json
import re
import time
import warnings

import pytest
from huggingface_hub import scan_cache_dir, snapshot_download

from glm_engine.core.console import human_bytes
from tests.python.hub.hub_server import CutError, Repository
from tests.python.hub.repositories import CONFIG, UNREAD, capitals, commit_of, random_model
from tests.python.hub.running import assert_nothing_half_made, assert_pulled

TOKEN = "hf_loopback"
FIRST_SHARD = "model-0-of-3.safetensors"


def test_a_model_comes_and_runs_by_its_name(hub, nursery, name):
    hub.repositories[name] = repository = capitals()
    report = nursery.pull(name)
    found = assert_pulled(report, repository)
    assert report["fetched_bytes"] == report["total_bytes"] == hub.bytes_sent
    assert not set(found) & set(UNREAD)
    assert {"config.json", "model-00002-of-00003.safetensors", "tokenizer.json"} <= set(found)
    assert_nothing_half_made(nursery.storage(name))
    ended = nursery.run("generate", "The capital of France is", "--model", name, "--device", "cpu")
    assert (ended.code, ended.out) == (0, " Paris.\n"), ended.err


def test_the_side_file_of_a_quantiser_comes_too(hub, nursery, name):
    files = {"config.json": CONFIG, "hf_quant_config.json": b"{}", "model.safetensors": b"x"}
    hub.repositories[name] = repository = Repository(files, commit_of(name))
    assert "hf_quant_config.json" in assert_pulled(nursery.pull(name), repository)


def test_what_is_printed_says_how_to_go_on(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    ended = nursery.run("pull", name)
    assert (ended.code, ended.err) == (0, "")
    assert f"glm serve {name}" in ended.out
    assert f"main, commit {repository.commit}" in ended.out
    assert "6, 150.1 kB, all checked" in ended.out


def test_a_terminal_shows_how_far_it_is(hub, nursery, name):
    hub.repositories[name] = random_model(name, 300_000)
    drawn = nursery.drawn("pull", name)
    assert "downloading" in drawn
    assert "900.1/900.1 kB" in drawn


def test_the_hubs_own_tools_read_what_came(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    report = nursery.pull(name)
    cache = nursery.home / "hub"
    for revision in ("main", repository.commit):
        folder = snapshot_download(name, revision=revision, cache_dir=cache, local_files_only=True)
        assert folder == report["folder"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scanned = scan_cache_dir(cache)
    storage = str(nursery.storage(name))
    assert not [one for one in scanned.warnings if storage in str(one)]
    [found] = [one for one in scanned.repos if one.repo_id == name]
    assert found.size_on_disk == report["total_bytes"]
    assert found.refs["main"].commit_hash == repository.commit


def test_a_second_pull_fetches_nothing(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    first, second = nursery.pull(name), nursery.pull(name)
    assert second == {**first, "fetched_bytes": 0}
    assert hub.bytes_sent == first["total_bytes"]


def test_what_another_tool_left_is_checked_and_mended(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    report = nursery.pull(name)
    entry = repository.entry(FIRST_SHARD)["lfs"]
    blob = nursery.storage(name) / "blobs" / entry["oid"]
    blob.write_bytes(bytes(entry["size"]))
    again = nursery.pull(name)
    assert again == {**report, "fetched_bytes": entry["size"]}
    assert_pulled(again, repository)


def test_a_name_stands_for_the_revision_that_was_pulled_last(hub, nursery, name):
    hub.repositories[name] = old = random_model(name, branches=("v1",))
    assert_pulled(nursery.pull(name, "--revision", "v1"), old)
    new = random_model(f"{name} later")
    new.files["config.json"] = old.files["config.json"]
    hub.repositories[name] = new
    report = nursery.pull(name)
    assert_pulled(report, new)
    assert report["fetched_bytes"] == report["total_bytes"] - len(old.files["config.json"])
    assert nursery.run("inspect", name, "--json").err.count(new.commit) == 1
    record = json.loads((nursery.storage(name) / "glm.json").read_text())
    assert (record["revision"], record["commit"]) == ("main", new.commit)
    refs = {path.name: path.read_text() for path in nursery.storage(name).glob("refs/*")}
    assert refs == {"v1": old.commit, "main": new.commit}
    assert_nothing_half_made(nursery.storage(name))


def test_a_commit_is_a_revision(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    report = nursery.pull(name, "--revision", repository.commit)
    assert_pulled(report, repository)
    assert not list(nursery.storage(name).glob("refs/*"))
    absent = nursery.run("pull", name, "--revision", commit_of("absent"))
    assert absent.code == 1
    assert f"has no revision '{commit_of('absent')}' of this model" in absent.line()


def test_a_token_is_shown_to_the_hub_and_to_nobody_else(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name, token=TOKEN)
    assert_pulled(nursery.pull(name, HF_TOKEN=TOKEN), repository)
    assert hub.content_tokens == [None] * 4


def test_a_server_without_ranges_begins_again(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    hub.behaviour.obeys_ranges = False
    cuts = iter([20_000, 90_000])
    limit = [next(cuts)]

    def cut(sent):
        if limit[0] and sent >= limit[0]:
            limit[0] = next(cuts, None)
            raise CutError

    hub.behaviour.before_piece = cut
    report = nursery.pull(name, "--max-workers", "1")
    assert_pulled(report, repository)
    assert limit == [None]
    assert hub.bytes_sent > report["total_bytes"]


def test_a_hub_that_is_busy_is_asked_again(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name)
    hub.behaviour.statuses = [503, 429, 500]
    assert_pulled(nursery.pull(name), repository)
    assert hub.behaviour.statuses == []


@pytest.mark.parametrize("site", ["https://huggingface.co/", "hf.co/", "{endpoint}/"])
def test_the_address_of_a_page_is_a_name(hub, nursery, name, site):
    hub.repositories[name] = repository = random_model(name, branches=("main", "v1"))
    page = site.format(endpoint=hub.endpoint) + name
    assert_pulled(nursery.pull(page), repository)
    assert nursery.pull(f"{page}/tree/v1")["revision"] == "v1"
    assert nursery.pull(f"{page}/tree/v1", "--revision", "v1")["revision"] == "v1"
    refused = nursery.run("pull", f"{page}/tree/v1", "--revision", "main")
    assert (refused.code, f"{page}/tree/v1 contains a revision, but" in refused.line()) == (2, True)
    shown = nursery.run("inspect", f"{page}/tree/v1")
    assert f"Run `glm pull {name} --revision v1`, then use {name}." in shown.line()


def test_a_pull_in_a_pipe_shows_progress(hub, nursery, name):
    hub.repositories[name] = repository = random_model(name, 300_000)
    hub.behaviour.before_piece = lambda _: time.sleep(0.005)
    ended = nursery.run("pull", name, line_seconds=0.05)
    assert ended.code == 0
    total = human_bytes(sum(map(len, repository.files.values())))
    rate = r"[\d.]+ [kM]?B/s, time left (\d:\d\d:\d\d|unknown)"
    form = rf"glm: downloading: (0 B|[\d.]+ k?B of {total}, {rate})"
    lines = ended.err.splitlines()
    assert sum(" of " in line for line in lines) > 3
    assert all(re.fullmatch(form, line) for line in lines), lines
    assert "\r" not in ended.err

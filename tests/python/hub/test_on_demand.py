"""Commands download a model that they need: config.json first, the weights only if needed."""

import json
import socket

import pytest

from glm_engine.core.layout import CONFIGS
from glm_engine.hub.names import find_config, tokenizer_of
from tests.python.hub.repositories import capitals, random_model
from tests.python.hub.test_names import TAKES_A_MODEL, with_files

QUESTION = "The capital of France is"
CPU = ("--device", "cpu")
SHIPPED = "zai-org/GLM-4.5-Air-FP8"
OTHER_TYPE = b'{"model_type": "qwen3_moe"}'


@pytest.fixture
def here(hub, tmp_path, monkeypatch):
    """This process asks the hub on the loopback and has an empty cache; give the cache."""
    cache = tmp_path / "cache"
    values = {
        "ENDPOINT": hub.endpoint,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
        "HF_HUB_OFFLINE": False,
    }
    for name, value in values.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    return cache


def test_a_command_downloads_the_model_that_it_needs_once(hub, nursery, name):
    hub.repositories[name] = capitals()
    ended = nursery.run("generate", QUESTION, "--model", name, *CPU)
    assert (ended.code, ended.out) == (0, " Paris.\n"), ended.err
    said, brought = ended.err.splitlines()[:2]
    assert said == (
        f"glm: {name} is neither a folder nor in {nursery.home / 'hub'}; "
        f"downloading it from {hub.endpoint}"
    )
    assert brought.startswith("glm: downloaded ")
    asked = dict(hub.asked)
    again = nursery.run("generate", QUESTION, "--model", name, *CPU)
    assert (again.code, again.out) == (0, " Paris.\n")
    assert "download" not in again.err
    assert hub.asked == asked


@pytest.mark.parametrize(("command", "arguments"), TAKES_A_MODEL.items())
def test_an_unsupported_model_is_refused_before_its_weights(
    hub, nursery, tmp_path, name, command, arguments
):
    hub.repositories[name] = repository = random_model(name)
    repository.files["config.json"] = OTHER_TYPE
    ended = nursery.run(command, *with_files(arguments, tmp_path), name)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.splitlines()[-1] == (
        f"glm: {name}: the model_type 'qwen3_moe' in its config.json is not supported. "
        "Supported: 'glm4_moe' (GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7)."
    )
    assert hub.bytes_sent == len(OTHER_TYPE)


def test_wrong_options_are_refused_before_the_hub_is_asked(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    assert nursery.run("serve", name, "--max-seq", "many").code == 2
    assert not hub.asked


def test_a_chat_with_a_server_downloads_nothing(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    ended = nursery.run("chat", "--url", "http://127.0.0.1:9", GLM_MODEL=name)
    assert ended.code != 0
    assert not hub.asked


def test_a_name_that_is_a_folder_with_a_typing_error(hub, nursery, name):
    ended = nursery.run("inspect", name)
    assert ended.code == 1
    assert f"{name} is neither a folder nor in " in ended.err
    assert f"{hub.endpoint} has no such model, or you do not have access to it" in ended.err
    assert hub.bytes_sent == 0


def test_a_plan_downloads_config_json_alone(hub, nursery, name):
    hub.repositories[name] = repository = capitals()
    planned = nursery.run("plan", name, *CPU, "--json")
    assert (planned.code, planned.err) == (0, "")
    assert json.loads(planned.out)["fits"]
    assert hub.bytes_sent == len(repository.files["config.json"])
    asked = dict(hub.asked)
    assert nursery.run("plan", name, *CPU, "--no-download").code == 0
    assert hub.asked == asked
    assert nursery.run("inspect", name, "--no-download").code == 2
    assert nursery.pull(name)["total_bytes"] > hub.bytes_sent / 2
    assert nursery.run("inspect", name, "--no-download").code == 0


def test_without_a_network_the_files_of_another_tool_serve(hub, nursery, name):
    hub.repositories[name] = capitals()
    report = nursery.pull(name)
    (nursery.storage(name) / "glm.json").unlink()
    asked = dict(hub.asked)
    ended = nursery.run("generate", QUESTION, "--model", name, *CPU, "--no-download")
    assert (ended.code, ended.out) == (0, " Paris.\n"), ended.err
    assert ended.err.splitlines()[0] == (
        f"glm: {name}: using {report['folder']}, which another tool downloaded "
        "and glm has not checked"
    )
    assert hub.asked == asked


def test_a_config_that_ships_needs_no_network(hub, here):
    shipped = str(CONFIGS / "glm-4.5-air-fp8.json")
    assert find_config(SHIPPED) == find_config("glm-4.5-air-fp8") == shipped
    assert find_config(f"https://huggingface.co/{SHIPPED}") == shipped
    assert not hub.asked
    assert not here.exists()


def test_a_folder_wins_over_a_config_that_ships(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / SHIPPED).mkdir(parents=True)
    assert find_config(SHIPPED) == SHIPPED


def test_a_tokenizer_comes_without_weights(hub, here, name):
    hub.repositories[name] = repository = random_model(name)
    folder = tokenizer_of(name, "unused")
    assert folder == str(here / name_of(name) / "snapshots" / repository.commit)
    found = {path.name for path in (here / name_of(name) / "blobs").iterdir()}
    assert len(found) == len({"config.json", "tokenizer.json", "chat_template.jinja"})
    assert not [path for path in found if path.endswith(".incomplete")]
    asked = dict(hub.asked)
    assert tokenizer_of(name, "unused") == folder
    assert hub.asked == asked
    assert tokenizer_of(None, "the checkpoint's") == "the checkpoint's"


def name_of(name):
    return f"models--{name.replace('/', '--')}"


def test_a_port_in_use_is_found_before_the_download(hub, nursery, name):
    hub.repositories[name] = random_model(name)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = nursery.run("serve", name, "--port", str(port))
    assert ended.code == 2
    reason = "Address already in use; choose another port with --port"
    assert ended.line() == f"glm: cannot listen on 127.0.0.1:{port}: {reason}\n"
    assert not hub.asked


def test_a_wrong_key_file_is_found_before_the_download(hub, nursery, name, tmp_path):
    hub.repositories[name] = random_model(name)
    ended = nursery.run("serve", name, "--api-key-file", str(tmp_path / "absent"))
    assert ended.code == 2
    assert "cannot read the API key file" in ended.line()
    assert not hub.asked

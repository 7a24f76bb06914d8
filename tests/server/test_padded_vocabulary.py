"""Ids that the weights have and the tokenizer has not: nothing is shown of them, nothing ends."""

import json

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer
from tests.linked import TOKENIZER, link_capitals, without_token
from tests.python.commands.running import CPU, glm, glm_json
from tests.server.serving import QUESTION, ServerProcess

PADDED, NUM_TOKENS = 2047, 5
FORCED = {"logit_bias": {PADDED: 100}, "max_tokens": NUM_TOKENS}
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Capitals whose last id has no token."""
    change = {TOKENIZER: without_token("/nothink")}
    folder = link_capitals(tmp_path_factory.mktemp("padded"), change)
    assert GlmTokenizer(CAPITALS).id_of("/nothink") == PADDED
    return folder


@pytest.fixture(scope="module")
def padded_server(model, tmp_path_factory):
    running = ServerProcess(tmp_path_factory.mktemp("serve"), "--model", model)
    yield running
    assert running.stop() == 0, running.log()
    assert "Traceback" not in running.log()


def posted(server, path, **body):
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(server, path, **body):
    text = server.http.post(path, json={**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def test_generate_and_chat_go_on(model) -> None:
    options = ("--model", model, *CPU)
    bias = ("--logit-bias", f"{PADDED}=1000", "--max-tokens", NUM_TOKENS)
    report = glm_json("generate", QUESTION, *options, *bias)
    assert (report["completion"], report["token_ids"]) == ("", [PADDED] * NUM_TOKENS)
    assert report["finish_reason"] == "length"
    assert glm("generate", QUESTION, *options, *bias).stdout == "\n"
    asked = ("--temperature", 100, "--seed", 1, "--max-tokens", 300)
    assert glm("chat", *options, *asked, stdin="Hello").returncode == 0


@pytest.mark.parametrize("skips", [True, False])
def test_completions_show_nothing(padded_server, skips) -> None:
    asked = {"prompt": QUESTION, "skip_special_tokens": skips, "logprobs": 2, **FORCED}
    whole = posted(padded_server, "/v1/completions", **asked)
    [choice] = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("", "length")
    assert choice["logprobs"]["tokens"] == [""] * NUM_TOKENS
    assert whole["usage"]["completion_tokens"] == NUM_TOKENS
    parts = streamed(padded_server, "/v1/completions", **asked)
    assert "".join(part["choices"][0]["text"] for part in parts) == ""
    assert parts[-1]["choices"][0]["finish_reason"] == "length"


def test_conversations_show_nothing(padded_server) -> None:
    asked = {"messages": MESSAGES, "logprobs": True, "top_logprobs": 1, **FORCED}
    [choice] = posted(padded_server, "/v1/chat/completions", **asked)["choices"]
    assert choice["message"]["content"] in (None, "")
    entries = choice["logprobs"]["content"]
    assert [(one["token"], one["bytes"]) for one in entries] == [("", [])] * NUM_TOKENS
    parts = streamed(padded_server, "/v1/chat/completions", **asked)
    assert all(not part["choices"][0]["delta"].get("content") for part in parts)


def test_prompts_hold_them_and_show_nothing(padded_server) -> None:
    text = GlmTokenizer(CAPITALS).encode("東", add_special_tokens=False)
    assert len(text) > 1
    ids = [text[0], PADDED, *text[1:]]
    assert posted(padded_server, "/detokenize", tokens=ids) == {"prompt": "東"}
    body = {"prompt": ids, "echo": True, **FORCED}
    assert posted(padded_server, "/v1/completions", **body)["choices"][0]["text"] == "東"


def test_random_weights_show_a_character_a_token(tmp_path) -> None:
    config = json.loads((CAPITALS / "config.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "vocab_size": 4096}))
    server = ServerProcess(tmp_path, "--synthetic", path, "--layers", 2, "--tokenizer", CAPITALS)
    body = {"prompt": [5], **FORCED, "logit_bias": {4000: 100}, "stream": True}
    lines = server.http.post("/v1/completions", json=body).text.splitlines()
    texts = [
        json.loads(one[6:])["choices"][0]["text"] for one in lines if one.startswith("data: {")
    ]
    assert "".join(texts) == "\ufffd" * NUM_TOKENS
    assert server.stop() == 0, server.log()

"""End tokens that generation_config.json alone names end answers, and are not shown."""

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer
from tests.linked import CONFIG, GENERATION, link_capitals, stating
from tests.server.serving import QUESTION

UNUSED_TOKEN = 2047
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def answer(server):
    """The tokens of the greedy answer, its end left out."""
    body = {"prompt": QUESTION, "temperature": 0}
    [choice] = server.http.post("/v1/completions", json=body).json()["choices"]
    tokens = GlmTokenizer(CAPITALS).encode(choice["text"])
    assert len(tokens) > 1
    return tokens


@pytest.mark.parametrize("is_streaming", [False, True])
def test_an_end_of_either_file_ends_answers(is_streaming, answer, start_server, tmp_path) -> None:
    ends = {CONFIG: [UNUSED_TOKEN], GENERATION: answer[1]}
    changes = {name: stating(eos_token_id=end) for name, end in ends.items()}
    server = start_server("--model", link_capitals(tmp_path, changes))
    with server.openai() as client:
        asked = {"model": "capitals", "prompt": QUESTION, "temperature": 0, "max_tokens": 9}
        parts = client.completions.create(**asked, stream=is_streaming)
        parts = list(parts) if is_streaming else [parts]
    text = GlmTokenizer(CAPITALS).decode(answer[:1])
    assert "".join(part.choices[0].text for part in parts) == text
    assert parts[-1].choices[0].finish_reason == "stop"


def test_a_grammar_ends_with_them(answer, start_server, tmp_path) -> None:
    ends = {CONFIG: [UNUSED_TOKEN], GENERATION: answer[1]}
    changes = {name: stating(eos_token_id=end) for name, end in ends.items()}
    server = start_server("--model", link_capitals(tmp_path, changes))
    body = {
        "messages": MESSAGES,
        "guided_choice": ["Paris", "Rome"],
        "logit_bias": {answer[1]: 100},
    }
    [choice] = server.http.post("/v1/chat/completions", json=body).json()["choices"]
    assert choice["message"]["content"] in ("Paris", "Rome")
    assert choice["finish_reason"] == "stop"

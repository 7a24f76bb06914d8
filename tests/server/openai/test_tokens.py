"""/tokenize and /detokenize."""

from glm_engine.cli.options import CAPITALS
from glm_engine.text.template import ChatTemplate
from glm_engine.text.tokenizer import GlmTokenizer
from tests.server.serving import MODEL, QUESTION
from tests.server.test_hostile_bodies import others_are_served

TOKENIZER = GlmTokenizer(CAPITALS)
MESSAGES = [{"role": "user", "content": "Hi"}]


def tokenize(server, **fields):
    return server.http.post("/tokenize", json={"model": MODEL, **fields})


def test_text(server) -> None:
    answer = tokenize(server, prompt=QUESTION, return_token_strs=True).json()
    assert answer["tokens"] == TOKENIZER.encode(QUESTION)
    assert answer["count"] == len(answer["tokens"])
    assert answer["max_model_len"] == 4096
    assert "".join(answer["token_strs"]) == QUESTION


def test_conversation(server) -> None:
    text = ChatTemplate(CAPITALS).render(MESSAGES)
    answer = tokenize(server, messages=MESSAGES).json()
    assert answer["tokens"] == TOKENIZER.encode(text, add_special_tokens=False)


def test_round_trip(server) -> None:
    text = "Zürich — 東京 🎈 <|user|>"
    ids = tokenize(server, prompt=text, add_special_tokens=False).json()["tokens"]
    back = server.http.post("/detokenize", json={"tokens": ids}).json()
    assert back == {"prompt": text}
    skipped = server.http.post("/detokenize", json={"tokens": ids, "skip_special_tokens": True})
    assert skipped.json() == {"prompt": text.removesuffix("<|user|>")}


def test_a_million_ids_while_others_are_served(server) -> None:
    ids = TOKENIZER.encode("Zürich — 東京", add_special_tokens=False)
    count = 1_000_000 // len(ids)
    with others_are_served(server):
        answer = server.http.post("/detokenize", json={"tokens": ids * count})
    assert answer.json() == {"prompt": "Zürich — 東京" * count}


def test_long_texts_in_a_thread(server) -> None:
    text = "The capital of France is Paris. " * 500
    answer = tokenize(server, prompt=text, return_token_strs=True).json()
    assert answer["tokens"] == TOKENIZER.encode(text)
    assert "".join(answer["token_strs"]) == text


def test_ids_that_no_token_has(server) -> None:
    answer = server.http.post("/detokenize", json={"tokens": [2**31 - 1]})
    assert answer.json() == {"prompt": ""}


def test_one_of_prompt_and_messages(server) -> None:
    assert tokenize(server).status_code == 400
    assert tokenize(server, prompt="x", messages=MESSAGES).status_code == 400

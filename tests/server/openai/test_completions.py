"""/v1/completions and /v1/models through the official client."""

import openai
import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer
from tests.server.serving import MODEL, QUESTION

TOKENIZER = GlmTokenizer(CAPITALS)


def complete(client, prompt=QUESTION, **fields):
    return client.completions.create(model=MODEL, prompt=prompt, **fields)


def test_models(client) -> None:
    assert [one.id for one in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "glm-engine"


def test_whole_answer(client) -> None:
    answer = complete(client)
    assert answer.choices[0].text == " Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.id.startswith("cmpl-")
    assert answer.usage.prompt_tokens == len(TOKENIZER.encode(QUESTION))
    assert answer.usage.completion_tokens == 3
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 3


def test_streamed_answer(client) -> None:
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(one.choices[0].text for one in chunks[:-1]) == " Paris."
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 3
    assert all(one.usage is None for one in chunks[:-1])
    assert len({one.id for one in chunks}) == 1


def test_no_usage_unless_asked(client) -> None:
    chunks = list(complete(client, stream=True))
    assert all(one.choices and one.usage is None for one in chunks)


def test_counts_in_every_event_when_asked(client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(complete(client, stream=True, stream_options=options))
    counts = [one.usage.completion_tokens for one in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == counts[-2] == 3
    assert all(one.usage.prompt_tokens == 5 for one in chunks)


def test_streams_equal_whole_answers(client) -> None:
    fields = {"max_tokens": 40, "temperature": 1, "seed": 7, "extra_body": {"ignore_eos": True}}
    whole = complete(client, **fields).choices[0]
    streamed = list(complete(client, stream=True, **fields))
    assert "".join(one.choices[0].text for one in streamed) == whole.text
    assert streamed[-1].choices[0].finish_reason == whole.finish_reason == "length"


def test_prompt_of_ids(client) -> None:
    assert complete(client, TOKENIZER.encode(QUESTION)).choices[0].text == " Paris."


@pytest.mark.parametrize("encode", [str, TOKENIZER.encode], ids=["texts", "ids"])
def test_lists_of_prompts(client, encode) -> None:
    countries = ["France", "Japan", "Peru"]
    prompts = [encode(f"The capital of {country} is") for country in countries]
    answer = complete(client, prompts, n=2, temperature=0)
    assert [one.index for one in answer.choices] == list(range(6))
    capitals = [" Paris.", " Tokyo.", " Lima."]
    assert [one.text for one in answer.choices] == [text for text in capitals for _ in range(2)]
    assert answer.usage.prompt_tokens == sum(
        len(TOKENIZER.encode(str(one)))
        for one in [f"The capital of {country} is" for country in countries]
    )


def test_choices_of_a_stream(client) -> None:
    chunks = list(complete(client, n=3, stream=True, temperature=0))
    texts = dict.fromkeys(range(3), "")
    for one in chunks:
        texts[one.choices[0].index] += one.choices[0].text
    assert set(texts.values()) == {" Paris."}


def test_seeds(client) -> None:
    fields = {"max_tokens": 24, "temperature": 1.5, "extra_body": {"ignore_eos": True}}
    first, second, other = (
        complete(client, seed=seed, **fields).choices[0].text for seed in (3, 3, 4)
    )
    assert first == second != other
    choices = complete(client, seed=3, n=2, **fields).choices
    assert [one.text for one in choices] == [first, other]


@pytest.mark.parametrize("streamed", [False, True])
def test_stop_text(client, streamed) -> None:
    fields = {"stop": ["ris", "nothing"], "stream": streamed}
    answer = complete(client, **fields)
    choices = [one.choices[0] for one in answer] if streamed else answer.choices
    assert "".join(one.text for one in choices) == " Pa"
    assert choices[-1].finish_reason == "stop"


def test_stop_text_is_kept_when_asked(client) -> None:
    answer = complete(client, stop="ris", extra_body={"include_stop_str_in_output": True})
    assert answer.choices[0].text == " Paris"


def test_stop_token_ids(client) -> None:
    paris = TOKENIZER.encode(" Paris", add_special_tokens=False)
    answer = complete(client, extra_body={"stop_token_ids": paris[-1:]})
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].text == TOKENIZER.decode(paris[:-1])
    kept = complete(
        client, extra_body={"stop_token_ids": paris[-1:], "include_stop_str_in_output": True}
    )
    assert kept.choices[0].text == " Paris"


def test_special_tokens_are_shown_when_asked(client) -> None:
    extra = {"skip_special_tokens": False, "include_stop_str_in_output": True}
    assert complete(client, extra_body=extra).choices[0].text == " Paris.<|endoftext|>"


def test_echo(client) -> None:
    assert complete(client, echo=True).choices[0].text == QUESTION + " Paris."
    chunks = list(complete(client, echo=True, stream=True))
    assert "".join(one.choices[0].text for one in chunks) == QUESTION + " Paris."


def test_logprobs(client) -> None:
    row = complete(client, logprobs=3).choices[0].logprobs
    assert "".join(row.tokens) == " Paris."
    assert row.text_offset == [0, len(row.tokens[0])]
    for token, value, best in zip(row.tokens, row.token_logprobs, row.top_logprobs, strict=True):
        assert best[token] == value == max(best.values())
        assert len(best) == 3
        assert value <= 0
    chunks = list(complete(client, logprobs=3, stream=True))
    tokens = [token for one in chunks for token in one.choices[0].logprobs.tokens]
    assert tokens == row.tokens


@pytest.mark.parametrize("is_streamed", [True, False])
def test_places_of_tokens_are_those_of_the_text(client, is_streamed) -> None:
    places = []
    text, extra = "aé日本x😀b", {"guided_choice": ["aé日本x😀b"]}
    answer = complete(client, logprobs=0, extra_body=extra, echo=False, stream=is_streamed)
    for one in answer if is_streamed else [answer]:
        row = one.choices[0].logprobs
        places += zip(row.tokens, row.text_offset, strict=True)
    spelled = TOKENIZER.encode(text, add_special_tokens=False)
    starts, done = [], b""
    for token in spelled:
        starts.append(len(done.decode("utf-8", "ignore")))
        done += TOKENIZER.bytes_of(token)
    assert len(spelled) > len(text)
    assert [place for _, place in places] == starts
    whole = [(token, place) for token, place in places if "\ufffd" not in token]
    assert whole
    assert all(text[place:].startswith(token) for token, place in whole)


def test_logit_bias(client) -> None:
    paris = TOKENIZER.encode(" Paris", add_special_tokens=False)[0]
    answer = complete(client, logit_bias={str(paris): -100})
    assert not answer.choices[0].text.startswith(" Paris")


def test_lengths(client) -> None:
    extra = {"ignore_eos": True, "min_tokens": 20}
    answer = complete(client, max_tokens=20, extra_body=extra)
    assert answer.usage.completion_tokens == 20
    assert answer.choices[0].finish_reason == "length"
    assert complete(client, extra_body={"ignore_eos": True}).usage.completion_tokens == 16


def test_cached_prompts_are_counted(client) -> None:
    prompt = "".join(f"Q: What is the capital of Japan?\nA: Tokyo.\n{n}" for n in range(6))
    length = len(TOKENIZER.encode(prompt))
    complete(client, prompt)
    cached = complete(client, prompt).usage.prompt_tokens_details.cached_tokens
    assert length - 17 <= cached < length


def test_unknown_model(client) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="other", prompt=QUESTION)
    assert caught.value.code == "model_not_found"
    assert "'other'" in caught.value.message

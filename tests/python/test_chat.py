"""The checkpoint's template, and the same text as transformers renders."""

import json

import pytest

from glm_engine.chat import ChatTemplate
from glm_engine.errors import BadInputError
from glm_engine.options import CAPITALS
from tests import groups

CONVERSATIONS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n{{ x }}"}],
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "ç <|user|>"},
    ],
]


def test_prompt_holds_the_messages_and_asks_for_an_answer():
    text = ChatTemplate(CAPITALS).render(CONVERSATIONS[1])
    assert text.index("Be brief.") < text.index("Hi\n{{ x }}")
    assert text.startswith("[gMASK]<sop>")
    assert "<|assistant|>" in text


@pytest.mark.parametrize("messages", CONVERSATIONS)
@pytest.mark.parametrize("add_generation_prompt", [True, False])
def test_same_text_as_transformers(messages, add_generation_prompt):
    transformers = groups.imported("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(CAPITALS).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=add_generation_prompt
    )
    assert ChatTemplate(CAPITALS).render(messages, add_generation_prompt) == theirs


def write_config(folder, **values):
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def test_template_inside_the_configuration(tmp_path):
    write_config(tmp_path, chat_template="{{ bos_token }}{{ messages[0].content }}", bos_token="B")
    assert ChatTemplate(tmp_path).render([{"content": "x"}]) == "Bx"


def test_list_of_templates_has_a_default(tmp_path):
    rows = [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
    write_config(tmp_path, chat_template=rows, eos_token={"content": "E"})
    template = ChatTemplate(tmp_path)
    assert template.render([]) == "d"
    assert template.special_tokens == {"eos_token": "E"}


def test_template_functions(tmp_path):
    source = (
        "{% for m in messages %}{% if m.stop %}{% break %}{% endif %}{{ m|tojson }}{% endfor %}"
    )
    (tmp_path / "chat_template.jinja").write_text(source)
    assert ChatTemplate(tmp_path).render([{"a": "é<"}, {"stop": 1}]) == '{"a": "é<"}'


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{% if %}", "not a template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "cannot render"),
    ],
)
def test_template_that_fails_is_named(tmp_path, source, message):
    (tmp_path / "chat_template.jinja").write_text(source)
    with pytest.raises(BadInputError, match=message):
        ChatTemplate(tmp_path).render([])


def test_no_template(tmp_path):
    with pytest.raises(BadInputError, match=r"neither chat_template\.jinja"):
        ChatTemplate(tmp_path)

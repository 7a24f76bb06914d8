"""The checkpoint's template, and templates that fail or do not end."""

import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from glm_engine.cli.options import CAPITALS
from glm_engine.core.bounded_process import Bounds, NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.text.template import BOUNDS, ChatTemplate

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
        ("{% if %}", "not a valid chat template"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "cannot render"),
    ],
)
def test_template_that_fails_is_named(tmp_path, source, message):
    (tmp_path / "chat_template.jinja").write_text(source)
    with pytest.raises(BadInputError, match=message):
        ChatTemplate(tmp_path).render([])


def test_no_template(tmp_path):
    with pytest.raises(
        BadInputError, match=r"no chat template found; expected chat_template\.jinja"
    ):
        ChatTemplate(tmp_path)


def template_of(folder, text, **bounds):
    (folder / "chat_template.jinja").write_text(text)
    return ChatTemplate(folder, Bounds(**{**vars(BOUNDS), "seconds": 0.5, **bounds}))


NESTED = "{% for a in range(99999) %}" * 4 + "x" + "{% endfor %}" * 4
RECURSIVE = (
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(99) }}"
)
DOUBLED = "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}"
DOUBLED += "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}"
ENDLESS = {
    "nested loops": NESTED,
    "a macro that calls itself twice": RECURSIVE,
    "a power": "{% set n = messages | length + 9 %}{{ n ** (n ** n) }}",
    "a text that is doubled": DOUBLED,
    "a text that is filled up": "{{ 'x'.ljust(messages | length + 10 ** 10) }}",
    "words": "{{ lipsum(n=10 ** 9, html=messages) }}",
}


@pytest.mark.parametrize("text", ENDLESS.values(), ids=ENDLESS)
def test_a_template_without_an_end_is_given_up(tmp_path, text):
    template = template_of(tmp_path, text)
    for _ in range(2):
        with pytest.raises(BadInputError, match=r"jinja: cannot render these messages: ") as error:
            template.render([])
        assert re.search(r"takes more than 0.5 s or 512 MiB|MemoryError", str(error.value))


def test_a_template_that_is_endless_to_compile_is_given_up(tmp_path):
    with pytest.raises(
        BadInputError, match=r"jinja: not a valid chat template: rendering takes more"
    ):
        template_of(tmp_path, "{{ 9 ** (9 ** 9) }}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{{ 1 / messages | length }}", "ZeroDivisionError: division by zero"),
        ("{{ messages['a'].b.c }}", "has no attribute 'a'"),
        ("{{ messages < 1 }}", "TypeError: '<' not supported"),
        ("{{ raise_exception('first\\nsecond') }}", "messages: first second"),
        ("{{ raise_exception('x' * 9999) }}", "messages: x{500}$"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError: maximum"),
        (
            "{{ 'x' * (messages | length + 2 ** 24 + 1) }}",
            "the rendered prompt has 16777217 characters",
        ),
        ("{{ messages | nothing }}", "not a valid chat template: No filter named"),
        ("{% for %}" * 9999, "not a valid chat template: "),
        ("(" * 9999, None),
        ("{{ " + "(" * 9999, "not a valid chat template: RecursionError"),
    ],
)
def test_any_fault_of_a_template_is_one_line(tmp_path, text, problem):
    if problem is None:
        assert template_of(tmp_path, text).render([]) == text
        return
    with pytest.raises(BadInputError, match=problem) as error:
        template_of(tmp_path, text).render([])
    assert len(str(error.value).splitlines()) == 1


def test_what_fails_once_renders_the_next(tmp_path):
    template = template_of(tmp_path, "{% if messages %}" + NESTED + "{% else %}fine{% endif %}")
    with pytest.raises(BadInputError, match="takes more than"):
        template.render([1])
    assert template.render([]) == "fine"


def test_threads_have_a_process_each_and_it_is_used_again(tmp_path):
    template = template_of(tmp_path, "{{ messages[0] }}")
    with ThreadPoolExecutor(3) as pool:
        texts = list(pool.map(template.render, [[number] for number in range(60)]))
    assert texts == [str(number) for number in range(60)]
    assert 1 <= len(template.idle) <= 3
    template.close()
    assert template.idle == []


def test_a_process_that_was_ended_is_replaced(tmp_path):
    template = template_of(tmp_path, "text")
    process = template.idle[0].process
    process.kill()
    process.wait()
    assert template.render([]) == "text"


def test_a_process_that_does_not_read_is_given_up(tmp_path):
    template = template_of(tmp_path, "text", patience_seconds=0.5)
    process = template.idle[0]
    os.kill(process.pid, signal.SIGSTOP)
    with pytest.raises(NoAnswerError, match="did not respond in time"):
        template.render(["x" * 200_000])
    assert not process.is_running
    assert template.render([]) == "text"


@pytest.mark.parametrize("is_slow", [True, False])
def test_closing_ends_the_process_that_is_asked(tmp_path, is_slow):
    template = template_of(tmp_path, NESTED if is_slow else "text", seconds=60)
    process = template.idle[0]
    if not is_slow:
        os.kill(process.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(template.render, [])
        while template.idle:
            time.sleep(0.01)
        template.close()
        assert isinstance(asked.exception(), NoAnswerError)
    assert not process.is_running


def test_interrupts_do_not_reach_the_process(tmp_path):
    template = template_of(tmp_path, "text")
    assert os.getpgid(template.idle[0].process.pid) != os.getpgid(0)


@pytest.mark.parametrize("name", ["self", "args", "caller", "loop", "", "a b", "é", "x" * 9999])
def test_a_variable_may_have_any_name(tmp_path, name):
    template = template_of(tmp_path, "{{ messages[0] }}{{ tools is none }}")
    assert template.render(["a"], variables={name: [{"deep": 1}]}) == "aTrue"


def test_all_that_json_knows_reaches_the_template(tmp_path):
    template = template_of(tmp_path, "{{ messages[0] | tojson }}{{ x is none }}{{ tools is none }}")
    message = {"a": [1, 2.5, True, None, 2**70, "\ud800é\u2028\n"], "b": {"c": {}}}
    text = template.render([message], variables={"x": None})
    assert json.loads(text.removesuffix("TrueTrue")) == message

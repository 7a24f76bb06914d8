"""What compiles, what does not and which place the error names, what a hostile client gets."""

import contextlib
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psutil
import pytest

from glm_engine.core.bounded_process import NoAnswerError
from glm_engine.core.errors import BadInputError
from glm_engine.text.grammar import CostlyGrammarError
from tests.python.text.grammar.rendering import written
from tests.python.text.grammar.walks import compiler_of_capitals, ids_of, spelling, takes

OPTIONAL = {"type": "object", "properties": {f"p{at}": {} for at in range(6000)}}
PATTERNS = {"allOf": [{"type": "string", "pattern": f"(.*a){{{at + 5}}}"} for at in range(40)]}
CROSSED = {
    "allOf": [
        {"anyOf": [{"required": [f"a{at}"], "properties": {f"a{at}": {"const": n}}} for n in "xyz"]}
        for at in range(9)
    ]
}
LAUGHS = {
    "$defs": {
        "d25": {"type": "string"},
        **{f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(25)},
    },
    "$ref": "#/$defs/d0",
}
QUICK_SECONDS = 2
KEYED = {"type": "object", "required": ["k"]}
REFUSED = {
    "an unknown type": ({"items": {"type": "strin"}}, "schema#/items: Invalid type: strin"),
    "an unknown format": (
        {"properties": {"a/b": {"anyOf": [{}, {"type": "string", "format": "shape"}]}}},
        "schema#/properties/a~1b/anyOf/1: Unknown format: shape",
    ),
    "behind a reference": (
        {"$defs": {"x": {"type": "string", "pattern": "(?=a)b"}}, "items": {"$ref": "#/$defs/x"}},
        r"schema#/\$defs/x: look-around",
    ),
    "no such reference": ({"items": {"$ref": "#/$defs/none"}}, "schema#/items: Pointer"),
    "a reference to elsewhere": ({"$ref": "http://x.y/z"}, "schema#: Resource"),
    "not": ({"prefixItems": [{}, {"not": {}}]}, r'schema#/prefixItems/1: .*\["not"\]'),
    "no value": ({"type": "integer", "minimum": 5, "maximum": 3}, "schema#: Unsatisfiable"),
    "no type": ({"allOf": [{"type": "string"}, {"type": "null"}]}, "schema#: Unsatisfiable"),
    "an empty enumeration": ({"enum": []}, "schema#: Unsatisfiable"),
    "a reference to itself": (
        {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"},
        "cannot match any text",
    ),
    "alternatives that overlap": ({"oneOf": [{"type": "string"}, {"minLength": 3}]}, "may overlap"),
    "the schema of nothing": (False, "schema: expected an object, got false"),
    "a list": ([], "schema: expected an object, got list"),
    "no JSON": ({"const": {1, 2}}, "schema: cannot be serialized to JSON"),
    "not a number": ({"const": float("nan")}, "schema: cannot be serialized to JSON"),
    "half a character": ({"const": "\ud800"}, "schema: cannot be serialized to JSON"),
    "too many properties": (OPTIONAL, "schema: the grammar takes more than"),
    "patterns that cross": (PATTERNS, "schema: the grammar takes more than"),
    "alternatives that cross": (CROSSED, "schema"),
    "one long text": (
        {"items": {"const": "x" * 20_000}, "minItems": 1, "type": "array"},
        "schema#/items: every matching text starts with the same 200.. bytes; the limit is 16384",
    ),
    "too large": ({"enum": ["x" * 200_000]}, "schema: 200014 bytes; the limit is 131072"),
}
ACCEPTED = {
    "recursion": (
        {"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}},
        "[[], 1]",
    ),
    "the root": ({"properties": {"in": {"$ref": "#"}}}, '{"in": {"in": {}}}'),
    "an empty object": ({"type": "object", "additionalProperties": False}, "{}"),
    "annotations": ({"title": "t", "description": "d", "examples": [1], "type": "null"}, "null"),
    "everything": ({}, '[{"a": [null, 1.5e3]}, "x", true]'),
    "all values": (True, "[]"),
    "apart by a constant": (
        {"oneOf": [{**KEYED, "properties": {"k": {"const": name}}} for name in "ab"]},
        '{"k": "b"}',
    ),
    "laughs": (LAUGHS, '"ha"'),
    "options of its own": (
        {"x-guidance": {"whitespace_flexible": False}, "items": {}},
        "[1, 2]",
    ),
}


@pytest.fixture(scope="module")
def quick():
    found = compiler_of_capitals(seconds=1.0)
    yield found
    found.close()


@pytest.mark.parametrize("case", REFUSED)
def test_a_schema_that_cannot_be_had_is_refused_at_its_place(quick, case):
    schema, message = REFUSED[case]
    with pytest.raises(BadInputError, match=message) as caught:
        quick.json_schema(schema)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_schemas_can_say(compiler, case):
    schema, text = ACCEPTED[case]
    assert takes(compiler.json_schema(schema), text)


def test_a_schema_nested_too_deep_is_refused(compiler):
    for depth in (100, 100_000):
        schema: dict = {}
        for _ in range(depth):
            schema = {"items": schema}
        with pytest.raises(BadInputError, match=r"nested 100 levels deep|to JSON"):
            compiler.json_schema(schema)
        while schema:
            schema = schema["items"]


LETTERS = [{"type": "string", "pattern": f"^\\p{{L}}{{{at}}}$"} for at in range(1, 6)]
SLOW = {
    "type": "array",
    "minItems": 1,
    "items": {"properties": {str(at): one for at, one in enumerate(LETTERS)}},
}
WRONG = {"type": "array", "items": {"type": "strin"}}
NUM_SLOW = 300
SOME_SECONDS = 0.3


def draft_with_a_problem_behind_slow_parts(drafts):
    """Draft a schema of 120 KB whose parts take some 10 ms each, and whose last part is wrong."""
    slow = {f"p{at}": SLOW for at in range(NUM_SLOW)}
    return drafts.json_schema({"type": "object", "properties": {**slow, "z": WRONG}})


def test_naming_the_place_of_a_problem_takes_no_longer_than_all_may():
    """Its processor's time, in the process and its children."""
    with contextlib.closing(compiler_of_capitals(seconds=SOME_SECONDS)) as compiler:
        compiler.choice(["a"])
        process = psutil.Process(compiler.proof.process.pid)
        before = sum(process.cpu_times()[:4])
        with pytest.raises(BadInputError, match=r"^schema#.*: Invalid type: strin$"):
            compiler.compile(draft_with_a_problem_behind_slow_parts(compiler.compiler))
        assert sum(process.cpu_times()[:4]) - before < 2 * SOME_SECONDS


def test_where_no_more_can_be_asked_the_place_is_what_was_found_by_then(compiler):
    def refuse(_part):
        raise CostlyGrammarError("enough")

    drafts = compiler.compiler
    tools = [{"function": {"name": "f", "parameters": {"properties": {"x": {"type": "object"}}}}}]
    assert drafts.json_schema(WRONG).explain("error: no", refuse) == "schema#: no"
    assert drafts.tool_calls(tools).explain("error: no", refuse) == "tools: no"


def test_what_is_quickly_proved_is_so_with_the_place_of_its_problem_or_is_called_costly(quick):
    drafts = quick.compiler
    draft, num_bytes = drafts.prove(drafts.regex("a+"), is_quick=True)
    assert draft.text == drafts.regex("a+").text
    assert num_bytes < 1 << 20
    with pytest.raises(BadInputError, match="schema#/items: Invalid type") as caught:
        drafts.prove(drafts.json_schema(WRONG), is_quick=True)
    assert not isinstance(caught.value, CostlyGrammarError)
    with pytest.raises(CostlyGrammarError):
        drafts.prove(drafts.json_schema(OPTIONAL), is_quick=True)
    with pytest.raises(CostlyGrammarError):
        drafts.prove(draft_with_a_problem_behind_slow_parts(drafts), is_quick=True)


def test_a_schema_full_of_panics_is_soon_called_costly(quick):
    """What is left of it is found slowly: meanwhile, others are proved quickly."""
    panics = {f"p{at}": {"type": "integer", "minimum": "é" * 60} for at in range(500)}
    drafts = quick.compiler
    draft = drafts.json_schema({"type": "object", "properties": panics}, strict=False)
    drafts.prove(drafts.regex("a"), is_quick=True)
    began = time.monotonic()
    with pytest.raises(CostlyGrammarError):
        drafts.prove(draft, is_quick=True)
    assert time.monotonic() - began < QUICK_SECONDS
    proved, _ = drafts.prove(draft)
    assert takes(drafts.build(proved), "{}")


def test_a_grammar_of_its_own_for_each_who_asks_once_one_has_failed(compiler):
    grammar = compiler.regex("ab")
    matcher = grammar.start()
    assert grammar.is_fresh
    with pytest.raises(BadInputError, match="the grammar failed on"):
        matcher.accept(ids_of("x")[0])
    assert not grammar.is_fresh


def test_what_would_be_a_large_text_is_refused_before_it_is_one(compiler):
    """Each argument that refers to the whole is written with a copy of it."""
    whole = {name: {"type": "array", "items": {"$ref": "#"}} for name in map(str, range(2000))}
    tracemalloc.start()
    try:
        with pytest.raises(BadInputError, match=r"^tools: \d+ bytes; the limit is 131072"):
            compiler.tool_calls([{"function": {"name": "f", "parameters": {"properties": whole}}}])
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


def test_after_a_hostile_schema_others_are_served(quick):
    with pytest.raises(BadInputError, match="the grammar takes more than 1 s or 64 MiB to compile"):
        quick.json_schema(PATTERNS)
    assert takes(quick.json_schema({"type": "boolean"}), "true")


def test_what_is_not_strict_leaves_out_what_cannot_be_enforced(compiler):
    schema = {"type": "string", "format": "shape", "not": {"const": "x"}}
    assert takes(compiler.json_schema(schema, strict=False), '"x"')


def test_an_object_is_an_object(compiler):
    assert takes(compiler.json_object(), '{"a": {}}')
    assert not takes(compiler.json_object(), "[1]")
    assert not takes(compiler.json_object(), '{"a": }')


@pytest.mark.parametrize(
    ("text", "is_compact"),
    [
        ('{"a":[1,{}],"b":2}', True),
        ('{"a": [1, {}], "b": 2}', True),
        ('{"a":  1}', False),
        ('{"a" :1}', False),
        ('{"a":1 }', False),
        ('{ "a":1}', False),
        ('{"a":1,\n"b":2}', False),
        ('{"a":[ 1]}', False),
    ],
)
def test_white_space_is_one_space_behind_commas_and_colons(compiler, text, is_compact):
    assert takes(compiler.json_object(), text) == is_compact
    assert takes(compiler.json_object(any_whitespace=True), text)


def test_any_white_space_has_an_end(compiler):
    grammar = compiler.json_schema({"items": {}}, any_whitespace=True)
    assert takes(grammar, "[" + " " * 64 + "]")
    assert not takes(grammar, "[" + " " * 65 + "]")


def test_arguments_and_documents_beside_calls_have_the_white_space_that_is_asked_for(compiler):
    tools = [{"function": {"name": "f", "parameters": {"properties": {"x": {"type": "object"}}}}}]
    for make in (compiler.tool_calls, partial(compiler.calls_or_document, schema={})):
        for value, is_compact in (("{}", True), ("{ }", False)):
            call = written(spelling(), "f", {"x": value})
            assert takes(make(tools), call) == is_compact
            assert takes(make(tools, any_whitespace=True), call)
    document = compiler.calls_or_document(tools, {"type": "object"})
    assert takes(document, "{}")
    assert not takes(document, "{ }")


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("[a-z]+/\n\\d{2}", "abc/\n12", True),
        ("[a-z]+", "abcD", False),
        ("a|", "", True),
        ("日+", "日日", True),
        ('"\\\\', '"\\', True),
    ],
)
def test_a_regular_expression_is_matched_as_a_whole(compiler, pattern, text, fits):
    assert takes(compiler.regex(pattern), text) == fits


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(?=a)b", "regex: look-around"),
        ("(", "regex: unclosed group"),
        (3, "regex: expected a string, got int"),
        ("\ud800", "regex: not valid Unicode"),
        ("(" * 50_000 + ")" * 50_000, "regex: "),
        ("a" * 200_000, "regex: 200000 bytes; the limit is 131072"),
    ],
)
def test_a_bad_regular_expression_is_refused(compiler, pattern, message):
    with pytest.raises(BadInputError, match=message):
        compiler.regex(pattern)


def test_a_choice_is_one_of_its_texts(compiler):
    texts = ["a", "ab", "", '"//#\n\x7f', "日本", "</think>", "\U0001f642"]
    grammar = compiler.choice(texts)
    assert all(takes(grammar, text) for text in texts if text != "</think>")
    assert not takes(grammar, "b")


@pytest.mark.parametrize("texts", [[], None, ["a", 3], ["\ud800"]])
def test_a_bad_choice_is_refused(compiler, texts):
    with pytest.raises(BadInputError, match=r"^choice"):
        compiler.choice(texts)


def test_equal_schemas_are_equal_texts(compiler):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    tools = [{"function": {"name": "f", "description": "now", "parameters": schema}}]
    later = [{"function": {"name": "f", "description": "later", "parameters": {**schema}}}]
    drafts = compiler.compiler
    assert drafts.json_schema(schema).text == drafts.json_schema({**schema}, name="b").text
    assert drafts.json_schema(schema).text != drafts.json_schema(schema, strict=False).text
    assert drafts.tool_calls(tools).text == drafts.tool_calls(later).text


def test_many_threads_get_the_grammar_that_each_asks_for(compiler):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: compiler.choice([f"choice {n}"]), range(16)))
    assert all(takes(grammar, f"choice {n}") for n, grammar in enumerate(found))


def test_a_process_that_was_killed_is_started_again(compiler):
    compiler.json_schema({"const": "before"})
    compiler.proof.process.stop()
    assert takes(compiler.json_schema({"const": "after"}), '"after"')


def test_closing_ends_the_process():
    compiler = compiler_of_capitals()
    compiler.choice(["a"])
    process = compiler.proof.process
    compiler.close()
    assert not process.is_running
    with pytest.raises(NoAnswerError, match="the process that compiles grammars has ended"):
        compiler.choice(["b"])
    assert compiler.proof.process is None

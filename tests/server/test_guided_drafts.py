"""Guided requests with draft tokens: the same tokens, log-probabilities and ends as without."""

import random
import time
from dataclasses import dataclass, replace

import pytest

from glm_engine.core.engine import Engine, Request, Sampling, ThoughtLimit
from glm_engine.server.guides import Guide, Guides, NewTokens
from glm_engine.text.dialogue import Opening
from tests.engine.running import (
    DEADLINE_SECONDS,
    Finished,
    open_engine,
    preempt_unless_ended,
    take,
)
from tests.engine.test_draft_rows import damaged
from tests.python.text.grammar.walks import VOCAB_SIZE, compiler_of_capitals, ids_of, tokenizer
from tests.reference.capitals import CAPITALS, prompts
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout

NUM_TOKENS = 60
NUM_CASES = 12
LONG_CHOICE = 4
CALLS_CASE = 7
DRAWN = Sampling(temperature=0.9, top_p=0.95, seed=11, num_logprobs=2)
PENALISED = replace(DRAWN, repetition_penalty=1.1, frequency_penalty=0.2)
ROW = {
    "type": "object",
    "properties": {
        "name_of_the_capital": {"type": "string", "maxLength": 12},
        "number_of_people": {"type": "integer", "minimum": 0, "maximum": 99},
        "continent": {"enum": ["North America", "South America", "Europe"]},
    },
    "required": ["name_of_the_capital", "number_of_people", "continent"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "function": {
            "name": "capital_of",
            "parameters": {
                **ROW,
                "properties": {"country": {"type": "string"}, **ROW["properties"]},
            },
        }
    }
]
COURSES = pytest.mark.parametrize("plan_ahead", [False, True], ids=["one by one", "planned ahead"])
SPLITS = [
    Split(2, ExpertLayout.TENSOR_PARALLEL),
    Split(4, ExpertLayout.EXPERT_PARALLEL),
    Split(8, ExpertLayout.TENSOR_PARALLEL),
]
LONG = [f"{name} is the capital of the country that was asked for" for name in ("Paris", "Rome")]


@dataclass
class Case:
    """A request, and the grammar that it follows."""

    grammar: object
    request: Request
    opening: Opening = Opening.ANSWER


def asked(index: int, **changes) -> Request:
    sampling = changes.pop("sampling", Sampling(num_logprobs=1))
    options = {"max_tokens": NUM_TOKENS, "stop_tokens": [2034], **changes}
    return Request(prompts()[index], sampling=sampling, **options)


@pytest.fixture(scope="module")
def compiler():
    found = compiler_of_capitals()
    yield found
    found.close()


def cases(compiler) -> list[Case]:
    rows = compiler.json_schema({"type": "array", "items": ROW, "minItems": 5})
    calls, prose = compiler.tool_calls(TOOLS), compiler.tool_calls(TOOLS, at_least=0)
    think, end = (tokenizer().id_of(tag) for tag in ("<think>", "</think>"))
    open_thought = ThoughtLimit(5, end, is_open=True)
    thought = ThoughtLimit(5, end, begin_token=think)
    return [
        Case(rows, asked(0)),
        Case(rows, asked(1, sampling=DRAWN)),
        Case(rows, asked(2, sampling=PENALISED, min_tokens=20, biases={40: 2.0})),
        Case(rows, asked(3, sampling=DRAWN, bad_words=[ids_of(" America"), ids_of("Q:")])),
        Case(compiler.choice(LONG), asked(4)),
        Case(compiler.choice(LONG), asked(5, stop_sequences=[ids_of(" of the")])),
        Case(compiler.regex("(yes, of course, always|no, never, not at all){8}"), asked(6)),
        Case(calls, asked(7, sampling=DRAWN)),
        Case(prose, asked(8, sampling=PENALISED)),
        Case(rows, asked(9, thought=open_thought, sampling=DRAWN), Opening.THOUGHT),
        Case(rows, asked(10, thought=thought), Opening.EITHER),
        Case(compiler.regex("\n?the same words again and again"), asked(11), Opening.EITHER),
    ]


@dataclass(eq=False)
class Choice:
    request_id: int
    guide: Guide


def run(engine: Engine, found: list[Case], disturb=lambda _engine, _id: None) -> list:
    """Tokens, end and log-probabilities of each case, all submitted at once."""
    most = engine.info()["max_draft_tokens"]
    guides, refused = Guides(engine, most), []
    finished, live = {}, {}
    for case in found:
        guide = Guide(case.grammar.start(case.opening), most)
        request_id = engine.submit(replace(case.request, mask=guide.matcher.mask()))
        finished[request_id] = Finished()
        live[request_id] = Choice(request_id, guide)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while live:
        assert time.monotonic() < deadline
        engine.wait(0.1)
        news: dict[Choice, NewTokens] = {}
        for event in engine.poll():
            if take(event, finished):
                live.pop(event.request_id)
            else:
                news.setdefault(live[event.request_id], NewTokens()).add(
                    [event.token_id], event.drafts
                )
                disturb(engine, event.request_id)
        going_on = {one: came for one, came in news.items() if one.request_id in live}
        guides.begin(going_on, lambda _choice, error: refused.append(error))
        assert not refused
    guides.close()
    return [results_of(one) for one in finished.values()]


def results_of(one: Finished) -> tuple:
    rows = [(event.logprob, tuple(event.top_logprobs)) for event in one.events]
    return one.tokens, one.finish_reason, rows


def opened(split: Split = ONE_RANK, **options):
    return open_engine(CAPITALS, split, max_batch=NUM_CASES, max_seq=160, **options)


@pytest.fixture(scope="module")
def expected(compiler) -> list:
    with opened() as engine:
        return run(engine, cases(compiler))


def test_the_cases_end_in_several_ways(expected):
    assert {reason for _, reason, _ in expected} == {"length", "stop_token", "stop_sequence"}


@COURSES
@pytest.mark.parametrize("most", [1, 3, 7])
def test_forced_tokens_are_drafts_and_change_no_answer(most, plan_ahead, compiler, expected):
    with opened(plan_ahead=plan_ahead, max_draft_tokens=most) as engine:
        assert run(engine, cases(compiler)) == expected
        info = engine.info()
        assert info["num_accepted_tokens"] > 40
        behind_an_end = info["num_draft_tokens"] - info["num_accepted_tokens"]
        assert behind_an_end < most * NUM_CASES
        for case, one in zip(cases(compiler), expected, strict=True):
            assert run(engine, [case]) == [one]


@pytest.mark.parametrize("split", SPLITS, ids=lambda split: split.label)
def test_forced_tokens_over_ranks_change_no_answer(split, compiler):
    with opened(split) as engine:
        expected = run(engine, cases(compiler))
    with opened(split, max_draft_tokens=3, speculate="lookup") as engine:
        assert run(engine, cases(compiler)) == expected
        assert engine.info()["num_accepted_tokens"] > 0


@COURSES
@pytest.mark.parametrize(("speculate", "most", "share"), [("mtp", 1, 0.85), ("auto", 3, 1.0)])
def test_the_prediction_layer_drafts_and_changes_no_answer(
    speculate, most, share, plan_ahead, compiler, expected
):
    options = {"plan_ahead": plan_ahead, "max_draft_tokens": most}
    with opened(**options) as engine:
        num_steps = steps_of(engine, cases(compiler)[CALLS_CASE], expected[CALLS_CASE])
    with opened(speculate=speculate, **options) as engine:
        assert run(engine, cases(compiler)) == expected
        assert engine.info()["num_prediction_layers"] == 1
        drafting = steps_of(engine, cases(compiler)[CALLS_CASE], expected[CALLS_CASE])
    assert drafting <= share * num_steps


def steps_of(engine: Engine, case: Case, expected: tuple) -> int:
    """The steps that a case takes by itself."""
    before = engine.info()["num_steps"]
    assert run(engine, [case]) == [expected]
    return engine.info()["num_steps"] - before


@COURSES
def test_a_forced_text_takes_few_forward_passes(plan_ahead, compiler, expected):
    with opened(plan_ahead=plan_ahead, max_draft_tokens=7) as engine:
        before = engine.info()["num_steps"]
        (one,) = run(engine, [cases(compiler)[LONG_CHOICE]])
        num_steps = engine.info()["num_steps"] - before
    assert one == expected[LONG_CHOICE]
    assert 2 * num_steps <= len(one[0])


@COURSES
@pytest.mark.parametrize("accuracy", [0.0, 0.7, 1.0])
def test_expected_tokens_are_drafts_where_the_grammar_allows_them(
    accuracy, plan_ahead, compiler, expected
):
    draw = random.Random(accuracy)
    predicted = [
        replace(
            case,
            request=replace(
                case.request, prediction_tokens=damaged(one[0], accuracy, draw, VOCAB_SIZE)
            ),
        )
        for case, one in zip(cases(compiler), expected, strict=True)
    ]
    with opened(plan_ahead=plan_ahead, max_draft_tokens=3, speculate="lookup") as engine:
        assert run(engine, predicted) == expected


@COURSES
def test_right_predictions_of_a_free_text_are_accepted(plan_ahead, compiler):
    case = Case(compiler.regex("(?s:.){400}"), asked(0))
    with opened() as engine:
        expected = run(engine, [case])
    predicted = replace(case.request, prediction_tokens=expected[0][0])
    with opened(plan_ahead=plan_ahead, max_draft_tokens=3, speculate="lookup") as engine:
        assert run(engine, [replace(case, request=predicted)]) == expected
        info = engine.info()
    assert info["num_accepted_tokens"] == info["num_draft_tokens"] > 0


@COURSES
def test_preempted_with_drafts(plan_ahead, compiler, expected):
    draw = random.Random(3)

    def disturb(engine: Engine, request_id: int) -> None:
        if draw.random() < 0.1:
            preempt_unless_ended(engine, request_id)

    with opened(plan_ahead=plan_ahead, max_draft_tokens=3) as engine:
        assert run(engine, cases(compiler), disturb) == expected
        assert engine.info()["num_preemptions"] > 0
    with opened(plan_ahead=plan_ahead, max_draft_tokens=3, num_pages=14) as engine:
        assert run(engine, cases(compiler)) == expected
        assert engine.info()["num_preemptions"] > 0

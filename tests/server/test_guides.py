"""Guides: masks in the order of tokens, off the event loop, and what becomes of failures."""

import asyncio
import threading
from types import SimpleNamespace

import numpy
import pytest

from glm_engine.core.errors import BadInputError, EngineError, Status
from glm_engine.core.requests import Request
from glm_engine.server.bridge import EngineBridge, Inbox
from glm_engine.server.choices import Choice
from glm_engine.server.guides import Guide, Guides, MaskBatch, NewTokens
from glm_engine.server.http.api_errors import ApiError
from glm_engine.text.dialogue import Opening
from tests.python.text.grammar.walks import ENDING_IDS, compiler_of_capitals, ids_of, tokenizer

SECONDS = 60


class RecordedEngine:
    """Remembers the masks that it is given, or refuses each with a status."""

    def __init__(self, status=Status.GLM_OK):
        self.status = status
        self.masks = []
        self.num_calls = 0
        self.threads = set()
        self.cancelled = []

    def set_masks(self, masks):
        self.threads.add(threading.current_thread())
        self.num_calls += 1
        if self.status != Status.GLM_OK:
            raise EngineError("engine_set_masks", self.status, "no")
        self.masks += masks

    def cancel_quietly(self, request_id):
        self.cancelled.append(request_id)


@pytest.fixture
def engine():
    return RecordedEngine()


@pytest.fixture(scope="module")
def compiler():
    found = compiler_of_capitals()
    yield found
    found.close()


@pytest.fixture
def guides(engine):
    found = Guides(engine)
    yield found
    found.close()


def choice_of(guide):
    choice = Choice(0, None, None, None, frozenset())
    choice.guide, choice.request_id = guide, 7
    return choice


async def advanced(guides, choice, token_id):
    """The error that taking a token ended in, None where it gave the next mask."""
    refused, num_masks = [], len(guides.engine.masks)
    guides.advance({choice: NewTokens([token_id])}, lambda *reason: refused.append(reason))
    until = asyncio.get_running_loop().time() + SECONDS
    while not refused and len(guides.engine.masks) == num_masks:
        assert asyncio.get_running_loop().time() < until
        await asyncio.sleep(0.001)
    assert all(one is choice for one, _ in refused)
    return refused[0][1] if refused else None


def test_the_first_mask_is_computed_off_the_loop(compiler, guides):
    threads = []

    class Watched:
        def __init__(self, matcher):
            self.matcher = matcher

        def mask(self):
            threads.append(threading.current_thread())
            return self.matcher.mask()

    async def run():
        grammar = compiler.regex("Paris")
        watched = SimpleNamespace(start=lambda opening: Watched(grammar.start(opening)))
        choices = [Choice(at, Request([1]), None, None, frozenset()) for at in range(3)]
        await guides.guide(choices, watched)
        assert len({id(choice.guide.matcher) for choice in choices}) == 3
        for choice in choices:
            assert numpy.array_equal(choice.request.mask, grammar.start().mask())

    asyncio.run(run())
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_masks_come_in_the_order_of_the_tokens(compiler, engine, guides):
    async def run():
        grammar = compiler.regex("Paris( is)? big")
        choice, alone = choice_of(Guide(grammar.start())), grammar.start()
        assert numpy.array_equal(choice.guide.matcher.mask(), alone.mask())
        for number, token in enumerate(ids_of("Paris is big")):
            assert await advanced(guides, choice, token) is None
            alone.accept(token)
            request_id, index, mask = engine.masks[-1]
            assert (request_id, index) == (7, number + 1)
            assert numpy.array_equal(mask, alone.mask())

    asyncio.run(run())
    assert threading.current_thread() not in engine.threads


def test_while_a_thought_is_open_it_may_not_end_the_turn(compiler, engine, guides):
    async def run():
        grammar = compiler.json_object()
        alone = grammar.start(Opening.THOUGHT)
        choice = choice_of(Guide(grammar.start(Opening.THOUGHT)))
        await advanced(guides, choice, ids_of("Hm")[0])
        assert numpy.array_equal(engine.masks[-1][2], alone.mask())
        await advanced(guides, choice, tokenizer().id_of("</think>"))
        assert numpy.array_equal(engine.masks[-1][2], grammar.start().mask())

    asyncio.run(run())


def test_a_token_outside_the_grammar_is_reported(compiler, guides):
    async def run():
        grammar = compiler.choice(["Paris"])
        error = await advanced(guides, choice_of(Guide(grammar.start())), ids_of("Rome")[0])
        assert isinstance(error, BadInputError)

    asyncio.run(run())


def taken(guide, *tokens, expected=()):
    """The masks that a guide gives for tokens and for all drafts behind them."""
    masks = guide.take(NewTokens(list(tokens), list(expected)))
    while found := guide.draft():
        masks += found
    return masks


def check_masks(masks, grammar, tokens, drafts):
    """Each mask is that of a matcher which took the tokens and the drafts before it alone."""
    assert [mask[0] for mask in masks] == [len(tokens) + at for at in range(len(drafts) + 1)]
    assert [mask[2:] for mask in masks[1:]] == list(enumerate(drafts, 1))
    for at, (_, mask, *_draft) in enumerate(masks):
        assert numpy.array_equal(mask, grammar.start().after(tokens + drafts[:at]).mask())


def test_tokens_that_the_grammar_forces_are_drafts(compiler):
    grammar, (first, *others) = compiler.choice(["Paris is big", "Rome"]), ids_of("Paris is big")
    assert len(others) > 2
    guide = Guide(grammar.start(), 7)
    check_masks(taken(guide, first), grammar, [first], others)
    assert [taken(guide, token) for token in others] == [[]] * len(others)
    assert taken(guide, ENDING_IDS[0])[0][0] == len(others) + 2


@pytest.mark.parametrize("most", [0, 1, 2])
def test_masks_are_given_for_twice_as_many_drafts_as_a_step_takes(most, compiler):
    first, *others = ids_of("Paris is the capital of France")
    grammar = compiler.choice(["Paris is the capital of France"])
    guide = Guide(grammar.start(), most)
    check_masks(taken(guide, first), grammar, [first], others[: 2 * most])
    if most:
        ((index, _, num_drafts, draft),) = taken(guide, others[0])
        assert (index, num_drafts, draft) == (2 * most + 2, 2 * most, others[2 * most])


def test_expected_tokens_are_drafts_as_far_as_the_grammar_allows_them(compiler):
    grammar, expected = compiler.regex("[a-z ]{40}"), ids_of("the city of")
    guide, (first, *_) = Guide(grammar.start(), 7), ids_of("in")
    masks = taken(guide, first, expected=[*expected, ids_of("7")[0], expected[0]])
    check_masks(masks, grammar, [first], expected)
    other = ids_of("a")[0]
    assert other != expected[0]
    check_masks(taken(guide, other, expected=expected), grammar, [first, other], expected)
    assert taken(guide, expected[0], expected=[other]) == []


def test_a_draft_that_the_grammar_fails_on_leaves_no_trace(compiler):
    grammar, expected = compiler.regex("[a-z ]{40}"), ids_of("the city of")
    guide, (first, *_) = Guide(grammar.start(), 7), ids_of("in")
    guide.take(NewTokens([first], expected))
    guide.draft()
    guide.matcher.require_state = lambda what: raise_error(f"too complex at {what}")
    assert guide.draft() == guide.draft() == []
    assert taken(guide, expected[0]) == []
    tokens = [first, expected[0], expected[1]]
    check_masks(taken(guide, expected[1], expected=expected[2:]), grammar, tokens, expected[2:])


def raise_error(message):
    raise BadInputError(message)


def test_drafts_take_turns_and_end_with_their_time(compiler, engine, monkeypatch):
    grammar = compiler.choice(["Paris is big"])
    first, *others = ids_of("Paris is big")
    choices = [choice_of(Guide(grammar.start(), 7)) for _ in range(2)]
    for number, choice in enumerate(choices):
        choice.request_id = number
    times = iter([0.0, 0.0, 0.0, 1.0])
    monkeypatch.setattr("glm_engine.server.guides.time.monotonic", lambda: next(times))
    batch = MaskBatch(engine, {choice: NewTokens([first]) for choice in choices}, None)
    for part in batch.parts:
        batch.advance(part)
    given = [(mask[0], mask[1], mask[3:]) for mask in engine.masks]
    drafted = [(1, (1, others[0])), (2, (2, others[1]))]
    assert given == [
        (number, index, draft)
        for number in range(2)
        for index, draft in [(1, ()), *((at + 1, one) for at, one in drafted)]
    ]


def test_what_comes_of_a_busy_choice_waits_for_its_wave(guides):
    may_go_on, taken_tokens = threading.Event(), []

    class SlowGuide:
        def take(self, news):
            taken_tokens.append(list(news.tokens))
            may_go_on.wait(SECONDS)
            return []

        def draft(self):
            return []

    slow, refused = choice_of(SlowGuide()), []
    for token in (1, 2, 3):
        guides.begin({slow: NewTokens([token])}, refused.append)
    quick = free_choice()
    guides.begin({quick: NewTokens([4])}, refused.append)
    while not guides.engine.masks:
        assert not refused
    assert taken_tokens == [[1]]
    may_go_on.set()
    guides.pool.submit(lambda: None).result()
    while guides.busy:
        assert not refused
    assert taken_tokens == [[1], [2, 3]]
    assert not guides.coming


def wave_of(engine, choices, refused):
    news = {choice: NewTokens([2]) for choice in choices}
    return MaskBatch(engine, news, lambda *reason: refused.append(reason))


def free_choice(accept=lambda _token: None):
    return choice_of(Guide(SimpleNamespace(accept=accept, mask=lambda: None)))


@pytest.mark.parametrize(
    ("status", "is_refused"),
    [(Status.GLM_OK, False), (Status.GLM_NOT_FOUND, False), (Status.GLM_INVALID_ARGUMENT, True)],
)
def test_what_the_engine_says_of_the_masks_of_a_wave(status, is_refused):
    choices, refused = [free_choice(), free_choice()], []
    batch = wave_of(RecordedEngine(status), choices, refused)
    for part in batch.parts:
        batch.advance(part)
    assert [choice for choice, _ in refused] == (choices if is_refused else [])
    assert all(error.status == status for _, error in refused)


@pytest.mark.parametrize("count", [1, 8, 9, 40])
def test_the_masks_of_a_wave_are_given_in_one_call(engine, count):
    choices, refused = [free_choice() for _ in range(count)], []
    batch = wave_of(engine, choices, refused)
    for part in batch.parts:
        assert engine.num_calls == 0
        batch.advance(part)
    assert (engine.num_calls, len(engine.masks), refused) == (1, count, [])


def test_a_choice_that_fails_keeps_no_other_of_its_wave(engine):
    def fail(_token):
        raise BadInputError("too complex")

    failing, others, refused = free_choice(fail), [free_choice() for _ in range(3)], []
    batch = wave_of(engine, [others[0], failing, *others[1:]], refused)
    for part in batch.parts:
        batch.advance(part)
    assert [choice for choice, _ in refused] == [failing]
    assert engine.masks == [(7, 1, None)] * 3


@pytest.mark.parametrize(
    ("error", "status", "code", "text"),
    [
        (BadInputError("too complex"), 400, "grammar_error", "too complex"),
        (EngineError("engine_set_masks", Status.GLM_DEVICE_ERROR, "lost"), 503, None, "lost"),
        (RuntimeError("secret"), 500, None, "computing the mask for the next token failed"),
    ],
)
def test_a_choice_without_its_mask_ends_and_leaves_the_engine(
    engine, guides, error, status, code, text
):
    async def run():
        bridge, inbox = EngineBridge(engine, guides), Inbox()
        choice = choice_of(None)
        bridge.routes[choice.request_id] = (choice, inbox)
        bridge.refuse(choice, error)
        bridge.refuse(choice, BadInputError("again"))
        assert engine.cancelled == [7]
        assert list(await inbox.take()) == [choice]
        with pytest.raises(ApiError, match=text) as caught:
            next(choice.advance())
        assert caught.value.status_code == status
        assert code in (None, caught.value.code)
        assert "secret" not in caught.value.detail

    asyncio.run(run())

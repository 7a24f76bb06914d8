"""Grammars that many ask for: compiled once, a line that moves, clients that go, what is kept."""

import asyncio
import gc
import threading
from functools import partial

import pytest

from glm_engine.core.errors import BadInputError
from glm_engine.server.grammar_queue import Grammars, make_compiler
from glm_engine.server.http.admission import AdmissionControl, BoundedReceive
from glm_engine.server.http.api_errors import CLIENT_CLOSED_REQUEST, ApiError
from glm_engine.server.http.request_record import RequestRecord
from glm_engine.server.server_settings import Settings
from glm_engine.text.grammar import CostlyGrammarError, Draft, Grammar
from tests.python.text.grammar.walks import ENDING_IDS, VOCAB_SIZE, tokenizer

SECONDS = 60
NUM_BYTES = 100


class HeldCompiler:
    """Proves nothing before it is let go; a pattern that begins with ( is wrong, [ is costly."""

    def __init__(self):
        self.has_begun = threading.Event()
        self.is_let_go = threading.Event()
        self.texts = []
        self.num_built = 0

    def regex(self, pattern):
        return Draft("regex", pattern, None)

    def prove(self, draft, is_quick=False):
        if is_quick and draft.text.startswith("["):
            raise CostlyGrammarError("regex: it takes long")
        self.texts.append(draft.text)
        self.has_begun.set()
        assert self.is_let_go.wait(SECONDS)
        if draft.text.startswith("("):
            raise BadInputError(f"regex: unclosed group in {draft.text}")
        return draft, NUM_BYTES

    def build(self, draft):
        self.num_built += 1
        return Grammar(None, draft.text)

    def close(self):
        self.is_let_go.set()


@pytest.fixture
def compiler():
    return HeldCompiler()


def grammars_of(make, **settings):
    settings = Settings(**settings)
    return Grammars(settings, AdmissionControl(1000, settings), make)


@pytest.fixture
def make_grammars(compiler):
    """Make grammars of the held compiler; they are closed with the test."""
    made = []

    def make(**settings):
        made.append(grammars_of(lambda: compiler, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Client:
    """One request for a grammar, whose client may go."""

    def __init__(self, grammars, pattern):
        self.has_gone = asyncio.Event()
        self.task = asyncio.create_task(ask(grammars, pattern, self.has_gone))


async def ask(grammars, pattern, has_gone):
    async def receive():
        await has_gone.wait()
        return {"type": "http.disconnect"}

    admission = grammars.quick.admission
    bounded = BoundedReceive(receive, admission.settings, admission)
    bounded.is_whole = True
    admission.enter(RequestRecord("/v1/completions"), bounded)
    try:
        return await grammars.compiled("guided_regex", "regex", pattern)
    finally:
        admission.leave()


async def outcomes(clients):
    """Return the grammars, or the errors, that clients got."""
    tasks = [one.task for one in clients]
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), SECONDS)


async def wait_until(is_so):
    async with asyncio.timeout(SECONDS):
        while not is_so():
            await asyncio.sleep(0.001)


def coming(grammars):
    return [*grammars.quick.coming.values(), *grammars.thorough.coming.values()]


def num_waiting(grammars):
    return sum(one.num_waiting for one in coming(grammars))


async def wait_until_nothing_is_left(grammars):
    """Wait until neither a grammar nor a failure nor their bytes are kept.

    A thread that made a grammar, and the turn of the loop that brought it, may hold it for a moment
    after its result is there.
    """

    def is_nothing_left():
        gc.collect()
        return not (coming(grammars) or grammars.used or grammars.held_bytes)

    await wait_until(is_nothing_left)


def statuses(errors):
    assert {type(one) for one in errors} <= {ApiError}
    return [one.status_code for one in errors]


async def held(grammars, compiler, patterns):
    """Return clients that all wait, the first for what is being compiled."""
    clients = [Client(grammars, one) for one in patterns]
    await wait_until(lambda: num_waiting(grammars) == len(clients))
    await wait_until(compiler.has_begun.is_set)
    return clients


def test_however_many_ask_for_one_new_grammar_it_is_compiled_once(make_grammars, compiler):
    async def run():
        clients = await held(make_grammars(), compiler, ["a+"] * 400)
        compiler.is_let_go.set()
        return await outcomes(clients)

    found = asyncio.run(run())
    assert {type(one) for one in found} == {Grammar}
    assert len(set(map(id, found))) == 1
    assert compiler.texts == ["a+"]


def test_all_who_ask_for_a_wrong_grammar_hear_what_is_wrong_and_it_is_not_kept(
    make_grammars, compiler
):
    async def run():
        grammars = make_grammars()
        clients = await held(grammars, compiler, ["(a"] * 3)
        compiler.is_let_go.set()
        found = await outcomes(clients)
        await wait_until_nothing_is_left(grammars)
        assert not grammars.quick.proved
        return found + await outcomes([Client(grammars, "(a")])

    found = asyncio.run(run())
    assert statuses(found) == [400] * 4
    assert {(one.param, one.code, one.detail) for one in found} == {
        ("guided_regex", "invalid_grammar", "regex: unclosed group in (a")
    }
    assert compiler.texts == ["(a"] * 2


def test_hundreds_of_different_grammars_may_come_at_once(make_grammars, compiler):
    patterns = [f"a{{{at}}}" for at in range(300)]

    async def run():
        grammars = make_grammars(grammar_wait_seconds=SECONDS, max_grammars_known=100)
        clients = await held(grammars, compiler, patterns)
        compiler.is_let_go.set()
        found = await outcomes(clients)
        assert len(grammars.quick.proved) == 100
        return found

    assert [one.state for one in asyncio.run(run())] == patterns
    assert sorted(compiler.texts) == sorted(patterns)


def test_whose_turn_does_not_come_in_time_is_refused_and_who_has_it_or_asks_for_a_known_one_is_not(
    make_grammars, compiler
):
    async def run():
        grammars = make_grammars()
        compiler.is_let_go.set()
        [known] = await outcomes([Client(grammars, "known")])
        compiler.is_let_go.clear()
        compiler.has_begun.clear()
        clients = await held(grammars, compiler, ["a"])
        grammars.quick.settings = Settings(grammar_wait_seconds=0.05)
        late = [Client(grammars, one) for one in ("c", "c", "known")]
        *refused, again = await outcomes(late)
        assert statuses(refused) == [429] * 2
        assert {one.code for one in refused} == {"grammars_full"}
        assert again is known
        assert len(coming(grammars)) == 1
        grammars.quick.settings = Settings()
        compiler.is_let_go.set()
        return await outcomes([*clients, Client(grammars, "c")])

    assert [one.state for one in asyncio.run(run())] == ["a", "c"]
    assert compiler.texts == ["known", "a", "c"]


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_who_goes_takes_the_grammar_from_nobody(make_grammars, compiler, is_cut_off):
    async def run():
        clients = await held(make_grammars(), compiler, ["a"] * 3)
        if is_cut_off:
            clients[0].task.cancel()
        else:
            clients[0].has_gone.set()
        gone = await outcomes(clients[:1])
        compiler.is_let_go.set()
        return gone + await outcomes(clients[1:])

    gone, *others = asyncio.run(run())
    if is_cut_off:
        assert isinstance(gone, asyncio.CancelledError)
    else:
        assert statuses([gone]) == [CLIENT_CLOSED_REQUEST]
    assert [one.state for one in others] == ["a", "a"]
    assert compiler.texts == ["a"]


def test_what_nobody_waits_for_any_more_frees_its_place(make_grammars, compiler):
    async def run():
        grammars = make_grammars()
        clients = await held(grammars, compiler, ["a", "b", "b"])
        for one in clients:
            one.has_gone.set()
        assert statuses(await outcomes(clients)) == [CLIENT_CLOSED_REQUEST] * 3
        await wait_until_nothing_is_left(grammars)
        later = await held(grammars, compiler, ["c", "a"])
        compiler.is_let_go.set()
        return await outcomes(later)

    assert [one.state for one in asyncio.run(run())] == ["c", "a"]
    assert compiler.texts == ["a", "c"]
    assert compiler.num_built == 3


def test_those_unused_for_longest_are_forgotten(make_grammars, compiler):
    async def run():
        grammars = make_grammars(max_grammars_known=2)
        compiler.is_let_go.set()
        for pattern in "abacab":
            await outcomes([Client(grammars, pattern)])
        await wait_until_nothing_is_left(grammars)

    asyncio.run(run())
    assert compiler.texts == ["a", "b", "c", "b"]
    assert compiler.num_built == 6


def test_who_waits_for_a_costly_grammar_holds_up_those_alone_who_do_too(make_grammars, compiler):
    async def run():
        grammars = make_grammars()
        compiler.is_let_go.set()
        await outcomes([Client(grammars, "first")])
        compiler.is_let_go.clear()
        costly = [Client(grammars, f"[{at}") for at in range(4)]
        await wait_until(lambda: len(grammars.thorough.coming) == 4)
        assert not grammars.quick.coming
        grammars.thorough.settings = Settings(grammar_wait_seconds=0.05)
        late = Client(grammars, "[late")
        [again] = await outcomes([Client(grammars, "first")])
        assert statuses(await outcomes([late])) == [429]
        compiler.is_let_go.set()
        return [again, *await outcomes(costly), *await outcomes([Client(grammars, "[0")])]

    found = asyncio.run(run())
    assert [one.state for one in found] == ["first", "[0", "[1", "[2", "[3", "[0"]
    assert compiler.texts == ["first", "[0", "[1", "[2", "[3"]


def test_grammars_in_use_are_shared_until_they_fail_and_counted_in_bytes(make_grammars, compiler):
    async def run():
        grammars = make_grammars(max_grammars_bytes=2 * NUM_BYTES)
        compiler.is_let_go.set()
        held = await outcomes([Client(grammars, one) for one in "abc"])
        refused = statuses([one for one in held if isinstance(one, ApiError)])
        assert refused == [429]
        held = [one for one in held if isinstance(one, Grammar)]
        assert grammars.held_bytes == 2 * NUM_BYTES
        shared = await outcomes([Client(grammars, held[0].state)])
        assert shared == held[:1]
        held[0].has_failed = True
        del held[1], shared
        assert grammars.held_bytes == NUM_BYTES
        [other] = await outcomes([Client(grammars, held[0].state)])
        assert other is not held[0]
        assert other.is_fresh
        del held, other
        await wait_until_nothing_is_left(grammars)

    asyncio.run(run())


def test_what_fails_unexpectedly_is_told_and_not_kept(make_grammars, compiler):
    compiler.is_let_go = None

    async def run():
        grammars = make_grammars()
        found = await outcomes([Client(grammars, "a")])
        await wait_until_nothing_is_left(grammars)
        return found

    [found] = asyncio.run(run())
    compiler.is_let_go = threading.Event()
    assert isinstance(found, AttributeError)


def test_requests_leave_nothing_in_a_cycle(make_grammars, compiler):
    async def ask_often(grammars, patterns):
        for pattern in patterns:
            compiler.is_let_go.clear()
            clients = await held(grammars, compiler, [pattern, pattern, "(", "gone"])
            clients[3].has_gone.set()
            await outcomes(clients[3:])
            grammars.quick.settings = Settings(grammar_wait_seconds=0)
            assert statuses(await outcomes([Client(grammars, "late")])) == [429]
            grammars.quick.settings = Settings()
            compiler.is_let_go.set()
            await outcomes([*clients, Client(grammars, pattern)])

    async def run():
        grammars = make_grammars()
        await ask_often(grammars, "ab")
        gc.collect()
        gc.disable()
        try:
            await ask_often(grammars, "cdefg")
            return gc.collect()
        finally:
            gc.enable()

    assert asyncio.run(run()) == 0


def test_a_grammar_of_the_checkpoint_is_compiled_off_the_loop_and_closing_ends_its_process():
    grammars = grammars_of(
        partial(make_compiler, tokenizer(), VOCAB_SIZE, frozenset(ENDING_IDS), None)
    )

    async def run():
        return await outcomes([Client(grammars, "(ab)+"), Client(grammars, "(ab")])

    found, wrong = asyncio.run(run())
    assert found.start().mask().any()
    assert statuses([wrong]) == [400]
    process = grammars.compiler.result().quick_proof.process
    grammars.close()
    assert not process.is_running


def test_a_checkpoint_that_no_grammar_can_use_refuses_each_request():
    grammars = grammars_of(partial(make_compiler, tokenizer(), VOCAB_SIZE, frozenset(), None))

    async def run():
        return await outcomes([Client(grammars, "a"), Client(grammars, "a")])

    for one in asyncio.run(run()):
        assert (one.status_code, one.param) == (400, "guided_regex")
        assert "has no end-of-text token" in one.detail
    grammars.close()

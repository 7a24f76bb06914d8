"""KV events of the C ABI: whoever follows them knows what the prefix cache holds."""

import select

import pytest

from glm_engine.core.engine import Request
from glm_engine.core.errors import EngineError, Status
from tests.devices import LEAST_PAGE, caches_answers, device_kind
from tests.engine.probes import DEBUG_LIBRARY
from tests.engine.running import follow_kv_events, open_engine, run_requests
from tests.reference.capitals import CAPITALS
from tests.reference.prefix_index import PrefixIndex
from tests.shapes import generator

PAGE_SIZE = max(4, LEAST_PAGE[device_kind()])
PAGES_OF_PROMPT = 8
NUM_PAGES = 48
OPTIONS = {
    "page_size": PAGE_SIZE,
    "num_pages": NUM_PAGES,
    "max_seq": 2 * PAGES_OF_PROMPT * PAGE_SIZE,
    "max_batch": 4,
}


@pytest.fixture(autouse=True)
def debug_build(monkeypatch):
    """The build whose invariants end the process when they break."""
    monkeypatch.setenv("GLM_ENGINE_LIBRARY", str(DEBUG_LIBRARY))


@pytest.fixture
def engine():
    with open_engine(CAPITALS, **OPTIONS, kv_events=True) as made:
        yield made


def catch_up(index, engine):
    """Take all that the engine tells, and see that the index has as many pages as the cache."""
    follow_kv_events(index, *engine.take_kv_events())
    assert len(index.prefixes) == engine.info()["cached_pages"]


def random_prompts(random, count):
    """Prompts that share how they begin, two tokens at every branching, two branchings a page."""
    return [
        [
            *random.integers(0, 2, 2 * PAGES_OF_PROMPT).repeat(PAGE_SIZE // 2),
            *random.integers(0, 9, 3),
        ]
        for _ in range(count)
    ]


def short(prompt, **fields):
    return Request(prompt=[int(one) for one in prompt], max_tokens=2, ignore_eos=True, **fields)


def test_what_is_cached_of_each_prompt_is_foretold(engine):
    index, seen = PrefixIndex(), set()
    for prompt in random_prompts(generator("kv events"), 60):
        foretold = index.num_cached_tokens(list(prompt), PAGE_SIZE)
        [result] = run_requests(engine, [short(prompt)])
        assert {event.cached_tokens for event in result.events} == {foretold}
        catch_up(index, engine)
        seen.add(foretold)
    assert len(seen) > 2
    assert engine.info()["num_evictions"] > 0
    assert index.num_cleared == 0


@pytest.mark.skipif(not caches_answers(), reason="its decode rows have bits of their own")
def test_what_is_cached_of_answers_is_foretold(engine):
    index, random = PrefixIndex(), generator("kv events of answers")
    for length in random.integers(1, 3 * PAGE_SIZE, 8).tolist():
        prompt = random.integers(0, 2048, length).tolist()
        first = Request(prompt=prompt, max_tokens=2 * PAGE_SIZE + 3, ignore_eos=True)
        [answer] = run_requests(engine, [first])
        catch_up(index, engine)
        prompt = [*prompt, *answer.tokens]
        foretold = index.num_cached_tokens(prompt, PAGE_SIZE)
        assert foretold == (len(prompt) - 1) // PAGE_SIZE * PAGE_SIZE
        [result] = run_requests(engine, [short(prompt)])
        assert {event.cached_tokens for event in result.events} == {foretold}
        catch_up(index, engine)


def test_a_crowd_preemptions_and_another_size_of_the_pool_are_told(engine):
    index, random = PrefixIndex(), generator("kv events of a crowd")
    for num_pages in (NUM_PAGES, 20, 11, NUM_PAGES):
        engine.resize_pool(num_pages)
        requests = [short(prompt) for prompt in random_prompts(random, 12)]
        run_requests(engine, requests)
        catch_up(index, engine)
    prompt = random_prompts(random, 1)[0]
    foretold = index.num_cached_tokens(list(prompt), PAGE_SIZE)
    [result] = run_requests(engine, [short(prompt)])
    assert {event.cached_tokens for event in result.events} == {foretold}


def test_who_reads_too_seldom_is_told_anew_what_is_there(engine):
    index = PrefixIndex()
    run_requests(engine, [short(prompt) for prompt in random_prompts(generator("late"), 100)])
    catch_up(index, engine)
    assert index.num_cleared == 1


def test_the_descriptor_is_readable_exactly_while_events_wait(engine):
    assert select.select([engine.kv_event_fd()], [], [], 0)[0] == []
    run_requests(engine, [short(range(2 * PAGE_SIZE + 1))])
    assert select.select([engine.kv_event_fd()], [], [], 0)[0] == [engine.kv_event_fd()]
    records, tokens = engine.take_kv_events()
    assert tokens.ravel().tolist() == list(range(2 * PAGE_SIZE))
    assert records["has_parent"].tolist() == [0, 1]
    assert records["parent_hash"][1] == records["hash"][0]
    assert select.select([engine.kv_event_fd()], [], [], 0)[0] == []
    assert len(engine.take_kv_events()[0]) == 0


@pytest.mark.parametrize("options", [{}, {"kv_events": False}])
def test_nothing_is_told_unless_it_is_asked_for(options):
    with open_engine(CAPITALS, **OPTIONS, **options) as engine:
        assert engine.kv_event_fd() == -1
        with pytest.raises(EngineError) as caught:
            engine.take_kv_events()
        assert caught.value.status == Status.GLM_NOT_SUPPORTED

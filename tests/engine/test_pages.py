"""The page pool: owners, prefix cache, eviction and compaction, against a model in Python."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.engine.probes import ALL_BITS, PagePool
from tests.engine.running import follow_kv_events
from tests.reference.prefix_index import PrefixIndex

NONE = -1
PAGE_SIZE = 2
PROMPTS = st.lists(st.integers(0, 1), min_size=0, max_size=6).map(
    lambda pages: [[token, 7 + token] for token in pages]
)
MACHINE_SETTINGS = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def page_tokens(number: int) -> list[int]:
    return [number, number + 1000]


@pytest.fixture
def open_pool():
    pools = []

    def open_one(*arguments):
        pools.append(PagePool(*arguments))
        return pools[-1]

    yield open_one
    for pool in pools:
        assert pool.is_consistent()
        pool.close()


@pytest.mark.parametrize("capacity", [0, 1, 2, 37])
def test_every_page_is_handed_out_once(open_pool, capacity):
    pool = open_pool(capacity, 16)
    pages = [pool.acquire() for _ in range(capacity)]
    assert sorted(pages) == list(range(capacity))
    assert pool.acquire() == NONE
    assert pool.counts()[:4] == (capacity, 0, capacity, 0)
    for page in pages:
        pool.release(page)
    assert pool.counts()[:4] == (capacity, capacity, 0, 0)
    assert sorted(pool.acquire() for _ in range(capacity)) == list(range(capacity))


@pytest.mark.parametrize(("capacity", "page_size"), [(-1, 16), (4, 0)])
def test_impossible_sizes_are_refused(capacity, page_size):
    with pytest.raises(ValueError, match=f"{capacity} pages of {page_size} tokens"):
        PagePool(capacity, page_size)


def test_a_shared_page_is_free_after_its_last_owner(open_pool):
    pool = open_pool(1, 4)
    page = pool.acquire()
    pool.retain(page)
    pool.release(page)
    assert pool.counts()[:4] == (1, 0, 1, 0)
    pool.release(page)
    assert pool.counts()[:4] == (1, 1, 0, 0)


def test_a_released_prefix_stays_in_the_cache_and_comes_back(open_pool):
    pool = open_pool(3, 2)
    page = pool.acquire()
    assert pool.register(page, NONE, page_tokens(1)) == page
    pool.release(page)
    assert pool.counts()[:4] == (3, 2, 0, 1)
    assert pool.find(NONE, page_tokens(1)) == page
    assert pool.find(NONE, page_tokens(2)) == NONE
    assert pool.find(page, page_tokens(1)) == NONE
    pool.retain(page)
    assert pool.counts()[:4] == (3, 2, 1, 0)


def test_the_least_recently_released_page_is_evicted_first(open_pool):
    pool = open_pool(3, 2)
    pages = [pool.acquire() for _ in range(3)]
    for number, page in enumerate(pages):
        pool.register(page, NONE, page_tokens(number))
    for number in (1, 0, 2):
        pool.release(pages[number])
    pool.retain(pages[1])
    pool.release(pages[1])
    assert [pool.acquire() for _ in range(3)] == [pages[0], pages[2], pages[1]]
    assert pool.counts()[4] == 3


def test_equal_hashes_do_not_make_equal_pages(open_pool):
    pool = open_pool(8, 2, 0)
    pages = [pool.acquire() for _ in range(8)]
    for number, page in enumerate(pages):
        assert pool.register(page, NONE, page_tokens(number)) == page
    assert [pool.find(NONE, page_tokens(number)) for number in range(8)] == pages
    assert pool.find(NONE, page_tokens(8)) == NONE


def test_a_second_writer_of_the_same_prefix_is_pointed_to_the_first(open_pool):
    pool = open_pool(2, 2)
    first, second = pool.acquire(), pool.acquire()
    pool.register(first, NONE, page_tokens(5))
    assert pool.register(second, NONE, page_tokens(5)) == first
    pool.release(second)
    assert pool.counts()[:4] == (2, 1, 1, 0)


def test_compaction_moves_pages_into_the_lower_part_and_keeps_the_cache(open_pool):
    pool = open_pool(8, 2)
    pages = [pool.acquire() for _ in range(8)]
    parent = NONE
    for number, page in enumerate(pages[4:7]):
        parent = pool.register(page, parent, page_tokens(number))
    for page in [*pages[:4], *reversed(pages[4:7])]:
        pool.release(page)
    moves = pool.resize(4)
    assert set(moves) == {page for page in pages[4:] if page >= 4}
    assert all(destination < 4 for destination in moves.values())
    parent = NONE
    for number, page in enumerate(pages[4:7]):
        parent = pool.find(parent, page_tokens(number))
        assert parent == moves.get(page, page)
    assert pool.counts()[:4] == (4, 0, 1, 3)
    assert pool.resize(8) == {}
    assert pool.counts()[:4] == (8, 4, 1, 3)


@pytest.mark.parametrize("capacity", [0, 1, 5])
def test_the_pool_shrinks_to_nothing_and_grows_again(open_pool, capacity):
    pool = open_pool(capacity, 2)
    assert pool.resize(0) == {}
    assert pool.acquire() == NONE
    pool.resize(capacity)
    assert pool.counts()[:2] == (capacity, capacity)


def test_dropping_the_cache_frees_what_nobody_owns(open_pool):
    pool = open_pool(3, 2)
    owned, cached = pool.acquire(), pool.acquire()
    pool.register(owned, NONE, page_tokens(1))
    pool.register(cached, NONE, page_tokens(2))
    pool.release(cached)
    pool.drop_cache()
    assert pool.counts()[:4] == (3, 2, 1, 0)
    assert pool.find(NONE, page_tokens(1)) == owned


class PoolMachine(RuleBasedStateMachine):
    """Sequences of pages open and close at random; the model knows each page's whole prefix."""

    hash_mask = ALL_BITS

    @initialize(capacity=st.integers(0, 12))
    def open_pool(self, capacity):
        self.capacity = capacity
        self.pool = PagePool(capacity, PAGE_SIZE, self.hash_mask)
        self.open = []
        self.prefix_of = {}
        self.index = PrefixIndex()
        if self.hash_mask == ALL_BITS:
            self.pool.tell_events()

    def teardown(self):
        if hasattr(self, "pool"):
            self.pool.close()

    def find_prefix(self, prompt):
        pages, parent = [], NONE
        for number, tokens in enumerate(prompt):
            page = self.pool.find(parent, tokens)
            if page == NONE:
                break
            assert self.prefix_of[page] == prompt[: number + 1]
            pages.append(page)
            parent = page
        return pages

    @rule(prompt=PROMPTS)
    def start(self, prompt):
        pages = self.find_prefix(prompt)
        for page in pages:
            self.pool.retain(page)
        num_found = len(pages)
        while len(pages) < len(prompt):
            page = self.pool.acquire()
            if page == NONE:
                break
            assert all(page not in other for other in self.open)
            assert page not in pages
            pages.append(page)
        self.register(prompt, pages, num_found)
        self.open.append(pages)

    def register(self, prompt, pages, num_found):
        for index in range(num_found, len(pages)):
            parent = pages[index - 1] if index else NONE
            page = self.pool.register(pages[index], parent, prompt[index])
            assert page == pages[index]
            self.prefix_of[page] = prompt[: index + 1]

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish(self, data):
        pages = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        for page in reversed(pages):
            self.pool.release(page)

    @rule()
    def drop_cache(self):
        self.pool.drop_cache()

    @rule(data=st.data())
    def resize(self, data):
        owned = self.pool.counts()[2]
        moves = self.pool.resize(data.draw(st.integers(owned, self.capacity)))
        assert len(set(moves.values())) == len(moves)
        self.open = [[moves.get(page, page) for page in pages] for pages in self.open]
        moved = {moves[page]: self.prefix_of.pop(page) for page in moves if page in self.prefix_of}
        self.prefix_of.update(moved)

    @precondition(lambda self: self.hash_mask == ALL_BITS)
    @rule()
    def take_events(self):
        """Whoever follows the events knows the pages that are registered, no more and no less."""
        follow_kv_events(self.index, *self.pool.take_events(PAGE_SIZE))
        assert len(self.index.prefixes) == self.pool.count_registered()
        for prefix in self.index.prefixes.values():
            page = NONE
            for begin in range(0, len(prefix), PAGE_SIZE):
                page = self.pool.find(page, prefix[begin : begin + PAGE_SIZE])
                assert page != NONE

    @invariant()
    def pages_add_up(self):
        if not hasattr(self, "pool"):
            return
        num_pages, num_free, num_owned, num_cached, _ = self.pool.counts()
        assert num_free + num_owned + num_cached == num_pages
        assert num_owned == len({page for pages in self.open for page in pages})
        assert self.pool.is_consistent()


class CollidingPoolMachine(PoolMachine):
    """The same where every page has the same hash."""

    hash_mask = 0


TestPool = PoolMachine.TestCase
TestPool.settings = MACHINE_SETTINGS
TestCollidingPool = CollidingPoolMachine.TestCase
TestCollidingPool.settings = MACHINE_SETTINGS

"""The queue of a request's masks: giving ahead, taking, and giving again after a rejection."""

import random
import zlib
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.probes import MaskQueue

NUM_TOKENS = 40
DEPTHS = pytest.mark.parametrize("depth", [1, 2, 4])
WRONG = 39
RIGHT = 0.7
ORDERS = st.lists(
    st.sampled_from(["give", "give", "take", "land", "land", "publish", "look"]), max_size=80
)


@pytest.fixture
def open_queue():
    queues = []

    def open_one(depth: int) -> MaskQueue:
        queues.append(MaskQueue(NUM_TOKENS, depth))
        return queues[-1]

    yield open_one
    for queue in queues:
        queue.close()


def words(number: int) -> list[int]:
    return [number, number % 256]


@DEPTHS
def test_masks_are_given_ahead_as_far_as_the_queue_is_deep(depth, open_queue):
    queue = open_queue(depth)
    for index in range(depth):
        queue.give(index, words(index + 1))
        assert queue.lacks(index)
    with pytest.raises(ValueError, match=rf"num_drafts is {depth}; expected 0 to {depth - 1} "):
        queue.give(depth, words(9))
    queue.take(0)
    assert not any(queue.lacks(index) for index in range(depth))
    assert queue.lacks(depth)
    assert [queue.at(index) for index in range(depth)] == [words(i + 1) for i in range(depth)]


@DEPTHS
def test_a_mask_for_another_index_is_refused_with_the_one_that_is_next(depth, open_queue):
    queue = open_queue(depth)
    queue.give(0, words(1))
    for index in (0, 2, -1, 2**31 - 1):
        with pytest.raises(ValueError, match=rf"index is {index}, .* output token 1 next"):
            queue.give(index, words(9))
    queue.take(0)
    assert queue.at(0) == words(1)


def test_a_queue_without_depth_takes_no_mask(open_queue):
    queue = open_queue(0)
    with pytest.raises(ValueError, match="request 7 was submitted without a mask"):
        queue.give(0, words(1))
    assert not queue.lacks(0)
    assert queue.at(0) is None


def full_queue(open_queue, depth: int = 4) -> MaskQueue:
    """A queue with as many masks as fit, all taken."""
    queue = open_queue(depth)
    for index in range(depth):
        queue.give(index, words(index + 1))
    queue.take(0)
    return queue


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_masks_behind_a_rejected_draft_are_given_again(accepted, open_queue):
    queue = full_queue(open_queue)
    queue.outputs[accepted - 1] = WRONG
    queue.publish(accepted)
    assert queue.lacks(accepted)
    with pytest.raises(ValueError, match=rf"output token {accepted} next"):
        queue.give(4, words(9), num_drafts=4 - accepted)
    queue.give(accepted, words(100))
    queue.give(accepted + 1, None)
    queue.take(accepted)
    assert queue.at(accepted) == words(100)
    assert queue.at(accepted + 1) is None
    assert not queue.lacks(accepted + 1)
    assert queue.lacks(accepted + 2)


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_masks_behind_accepted_drafts_stay(accepted, open_queue):
    queue = full_queue(open_queue)
    queue.take(accepted)
    queue.publish(accepted)
    assert not queue.lacks(3)
    with pytest.raises(ValueError, match=r"output token 4 next"):
        queue.give(accepted, words(9))
    queue.give(4, words(5))
    queue.take(accepted)
    assert [queue.at(index) for index in range(accepted, 5)] == [
        words(index + 1) for index in range(accepted, 5)
    ]


def test_a_mask_that_comes_between_a_rejection_and_its_event_is_forgotten(open_queue):
    queue = open_queue(3)
    queue.give(0, words(1))
    queue.give(1, words(2))
    queue.take(0)
    queue.outputs[0] = WRONG
    queue.take(1)
    assert queue.lacks(1)
    queue.give(2, words(3))
    queue.take(1)
    assert queue.lacks(1)
    queue.publish(1)
    queue.give(1, words(4))
    queue.take(1)
    assert queue.at(1) == words(4)
    assert queue.lacks(2)


@pytest.mark.parametrize("draft", [0, WRONG])
def test_a_mask_that_comes_after_its_draft_counts_if_the_draft_was_right(draft, open_queue):
    queue = open_queue(3)
    queue.give(0, words(1))
    queue.take(0)
    queue.publish(1)
    queue.give(1, words(2), num_drafts=1, draft=draft)
    queue.give(2, words(3), num_drafts=2)
    queue.take(1)
    assert queue.lacks(1) == queue.lacks(2) == (draft == WRONG)


@pytest.mark.parametrize("draft", [-1, NUM_TOKENS])
def test_a_mask_behind_an_unknown_draft_is_refused(draft, open_queue):
    queue = open_queue(2)
    queue.give(0, words(1))
    expected = (
        rf"draft_token is {draft}; expected 0 to {NUM_TOKENS - 1}, or -1 if request 7 has a "
        "draft token at output position 0"
    )
    with pytest.raises(ValueError, match=expected):
        queue.give(1, words(2), draft=draft)


def test_bits_behind_the_vocabulary_are_cleared(open_queue):
    queue = open_queue(1)
    queue.give(0, [2**32 - 1, 2**32 - 1])
    assert queue.at(0) == [2**32 - 1, 255]


@pytest.mark.parametrize(("given_ns", "is_late"), [(150, False), (151, True)])
def test_a_late_request_is_forgiven_for_a_mask_in_time(given_ns, is_late, open_queue):
    queue = open_queue(1)
    queue.give(0, words(1))
    queue.take(0)
    queue.set_late()
    queue.publish(1, now_ns=100)
    queue.take(1, patience_ns=50)
    assert queue.is_late()
    queue.give(1, words(2), now_ns=given_ns)
    queue.take(1, patience_ns=50)
    assert queue.is_late() == is_late


def test_a_mask_counts_its_drafts(open_queue):
    queue = open_queue(3)
    queue.give(0, words(1))
    queue.take(0)
    queue.publish(1)
    with pytest.raises(ValueError, match=r"num_drafts is -1; expected 0 to 2"):
        queue.give(1, words(2), num_drafts=-1)
    queue.give(1, words(3), num_drafts=0)
    with pytest.raises(ValueError, match=r"index is 2, but request 7 has sampled only 1 tokens"):
        queue.give(2, words(4), num_drafts=0)


def words_behind(tokens: list[int]) -> list[int]:
    """A mask that tells which tokens it stands on."""
    return words(zlib.crc32(bytes(tokens)))


class Caller:
    """Gives masks of what it has seen and guessed, while an engine takes them and draws tokens."""

    def __init__(self, depth: int, draw: random.Random):
        self.queue = MaskQueue(NUM_TOKENS, depth)
        self.depth, self.draw = depth, draw
        self.tokens, self.drafts = [], []
        self.num_known = self.num_seen = self.num_given = 0
        self.is_rejected = False

    def give(self) -> None:
        if self.num_given - self.num_seen >= self.depth:
            return
        if self.num_given > self.num_seen:
            self.drafts.append(self.draw.randrange(NUM_TOKENS))
        behind = self.tokens[: self.num_seen] + self.drafts
        draft, num_drafts = (self.drafts or [-1])[-1], len(self.drafts)
        self.queue.give(self.num_given, words_behind(behind), 0, num_drafts, draft)
        self.num_given += 1

    def take(self) -> None:
        self.queue.take(len(self.tokens))
        self.is_rejected = False

    def land(self) -> None:
        """Draw one more token of the step, if its mask was taken and the draft before it came."""
        index = len(self.tokens)
        if self.is_rejected or self.queue.lacks(index):
            return
        assert self.queue.at(index) == words_behind(self.tokens)
        place = index - self.num_seen
        draft = self.drafts[place] if place < len(self.drafts) else None
        is_right = draft is not None and self.draw.random() < RIGHT
        token = draft if is_right else self.draw.randrange(NUM_TOKENS)
        self.queue.outputs[index] = token
        self.tokens.append(token)
        self.is_rejected = token != draft

    def publish(self) -> None:
        self.take()
        self.queue.publish(len(self.tokens))
        self.num_known = len(self.tokens)

    def look(self) -> None:
        """See the tokens that were published; give up what stands on a wrong draft."""
        for token in self.tokens[self.num_seen : self.num_known]:
            self.num_seen += 1
            if self.drafts and self.drafts.pop(0) == token:
                continue
            self.drafts = []
            self.num_given = self.num_seen

    def finish(self) -> None:
        """One mask more at most, and the next token can be drawn."""
        self.publish()
        self.look()
        if self.num_given <= self.num_seen:
            self.give()
        self.take()
        assert not self.queue.lacks(len(self.tokens))
        assert self.queue.at(len(self.tokens)) == words_behind(self.tokens)


@settings(max_examples=500, deadline=None)
@given(orders=ORDERS, depth=st.integers(1, 5), draw=st.randoms(use_true_random=False))
def test_masks_in_force_stand_on_the_tokens_that_came(orders, depth, draw):
    caller = Caller(depth, draw)
    with closing(caller.queue):
        for order in orders:
            getattr(caller, order)()
        caller.finish()

"""The queue of a request's masks: giving ahead, taking, and giving again after a rejection."""

from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.probes import MaskQueue

NUM_TOKENS = 40
DEPTHS = pytest.mark.parametrize("depth", [1, 2, 4])
ORDERS = st.lists(
    st.sampled_from(["give", "give", "give open", "take", "publish", "land"]), max_size=60
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


@pytest.mark.parametrize("accepted", [1, 2, 3])
def test_masks_behind_a_rejected_draft_are_given_again(accepted, open_queue):
    queue = open_queue(4)
    for index in range(4):
        queue.give(index, words(index + 1))
    queue.take(0)
    queue.publish(accepted)
    assert queue.lacks(accepted)
    with pytest.raises(ValueError, match=rf"output token {accepted} next"):
        queue.give(4, words(9))
    queue.give(accepted, words(100))
    queue.give(accepted + 1, None)
    queue.take(accepted)
    assert queue.at(accepted) == words(100)
    assert queue.at(accepted + 1) is None
    assert not queue.lacks(accepted + 1)
    assert queue.lacks(accepted + 2)


def test_a_mask_that_comes_between_a_rejection_and_its_event_is_forgotten(open_queue):
    queue = open_queue(2)
    queue.give(0, words(1))
    queue.give(1, words(2))
    queue.take(0)
    queue.take(1)
    assert queue.lacks(1)
    queue.give(1, words(3))
    queue.take(1)
    assert queue.lacks(1)
    queue.publish(1)
    queue.give(1, words(4))
    queue.take(1)
    assert queue.at(1) == words(4)


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


def test_masks_of_drafts_come_before_the_next_token(open_queue):
    queue = open_queue(3)
    queue.give(0, words(1))
    queue.take(0)
    queue.publish(1)
    stale = r"index 1 comes after 1 drafts, but request 7 has sampled 1 tokens"
    with pytest.raises(ValueError, match=stale):
        queue.give(1, words(2), num_drafts=1)
    with pytest.raises(ValueError, match=r"num_drafts is -1; expected 0 to 2"):
        queue.give(1, words(2), num_drafts=-1)
    queue.give(1, words(3), num_drafts=0)
    with pytest.raises(ValueError, match=r"index is 2, but request 7 has sampled only 1 tokens"):
        queue.give(2, words(4), num_drafts=0)


class Model:
    """The rule of the queue, over a list of all masks that count."""

    def __init__(self, depth: int):
        self.depth = depth
        self.masks = []
        self.num_outputs = self.num_known = self.num_taken = 0

    def rewind(self) -> None:
        if self.num_outputs > self.num_known:
            del self.masks[self.num_outputs :]

    def give(self, mask) -> bool:
        may_give = len(self.masks) < self.num_known + self.depth
        if may_give:
            self.masks.append(mask)
        return may_give

    def land(self) -> None:
        """Accepts one more token of the step, if the mask of its row was taken."""
        if self.num_taken > self.num_outputs:
            self.num_outputs += 1

    def take(self) -> None:
        self.rewind()
        self.num_taken = len(self.masks)

    def publish(self) -> None:
        self.rewind()
        self.num_taken = min(self.num_taken, len(self.masks))
        self.num_known = self.num_outputs


class Story:
    """The same orders for a queue and for its model."""

    def __init__(self, queue: MaskQueue, depth: int):
        self.queue = queue
        self.model = Model(depth)

    def follow(self, number: int, order: str) -> None:
        if order.startswith("give"):
            self.give(None if order == "give open" else words(number + 1))
        elif order == "land":
            self.model.land()
        else:
            getattr(self.model, order)()
            getattr(self.queue, order)(self.model.num_outputs)
            self.check()

    def give(self, mask) -> None:
        index = len(self.model.masks)
        if self.model.give(mask):
            self.queue.give(index, mask)
        else:
            with pytest.raises(ValueError, match="num_drafts is"):
                self.queue.give(index, mask)

    def check(self) -> None:
        model = self.model
        for index in range(model.num_outputs, model.num_outputs + model.depth + 1):
            assert self.queue.lacks(index) == (index >= model.num_taken)
            if index < model.num_taken:
                assert self.queue.at(index) == model.masks[index]


@settings(max_examples=300, deadline=None)
@given(orders=ORDERS, depth=st.integers(1, 4))
def test_a_queue_keeps_to_its_rule_under_random_orders(orders, depth):
    with closing(MaskQueue(NUM_TOKENS, depth)) as queue:
        story = Story(queue, depth)
        for number, order in enumerate(orders):
            story.follow(number, order)

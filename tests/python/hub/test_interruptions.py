"""A pull that is cut, interrupted and killed again and again ends with the right bytes."""

import os
import signal
import threading

from tests.python.hub.hub_server import CutError
from tests.python.hub.repositories import UNREAD, capitals, random_model
from tests.python.hub.running import assert_nothing_half_made, assert_pulled, bytes_here
from tests.shapes import generator

NUM_INTERRUPTIONS = 20
SHARD_BYTES = 1_200_000
PATIENCE = 120
INTERRUPTED = "\nglm: interrupted. Run the same command to continue the download.\n"


class Interruption:
    """Cuts one connection when `cut_at` bytes were sent, and at `stop_at` sends no more."""

    def __init__(self, cut_at, stop_at, resets):
        self.cut_at, self.stop_at, self.resets = cut_at, stop_at, resets
        self.lock, self.is_cut = threading.Lock(), False
        self.reached, self.released = threading.Event(), threading.Event()

    def before_piece(self, sent):
        if sent >= self.stop_at:
            self.reached.set()
            self.released.wait(PATIENCE)
            raise CutError
        with self.lock:
            is_due = sent >= self.cut_at and not self.is_cut
            self.is_cut |= is_due
        if is_due:
            raise CutError(self.resets)


def test_a_pull_that_is_interrupted_twenty_times_ends_with_the_right_bytes(hub, nursery, name):
    draw = generator("interruptions")
    hub.repositories[name] = repository = random_model(name, SHARD_BYTES)
    storage, total = nursery.storage(name), sum(map(len, repository.files.values()))
    here = 0
    for done in range(NUM_INTERRUPTIONS):
        hub.reset()
        most = max((total - here) // (NUM_INTERRUPTIONS + 1 - done), 2)
        stop_at = int(draw.integers(1, most))
        planned = Interruption(int(draw.integers(0, stop_at)), stop_at, bool(draw.integers(2)))
        hub.behaviour.before_piece = planned.before_piece
        number = draw.choice([signal.SIGINT, signal.SIGKILL])
        ended = interrupt(nursery, planned, number, "pull", name)
        assert ended in ((130, INTERRUPTED), (-9, ""))
        assert_nothing_half_made(storage)
        assert not list(storage.glob("snapshots/*/*"))
        assert bytes_here(storage) >= here
        here = bytes_here(storage)
    assert here > 0
    assert f"`glm pull {name}`" in nursery.run("inspect", name, "--no-download").line()
    hub.reset()
    report = nursery.pull(name)
    assert_pulled(report, repository)
    assert report["fetched_bytes"] == total - here
    assert not list(storage.glob("blobs/*.incomplete"))


def test_a_command_that_downloads_is_interrupted_and_continues(hub, nursery, name):
    hub.repositories[name] = repository = capitals()
    planned = Interruption(10**9, 1_000_000, resets=False)
    hub.behaviour.before_piece = planned.before_piece
    asked = ("generate", "The capital of France is", "--model", name, "--device", "cpu")
    code, err = interrupt(nursery, planned, signal.SIGINT, *asked)
    assert (code, err.partition("\n")[2]) == (130, INTERRUPTED)
    here = bytes_here(nursery.storage(name))
    assert here > 0
    hub.reset()
    ended = nursery.run(*asked)
    assert (ended.code, ended.out) == (0, " Paris.\n"), ended.err
    total = sum(len(repository.files[path]) for path in repository.files if path not in UNREAD)
    assert 0 < hub.bytes_sent <= total - here


def interrupt(nursery, planned, number, *arguments):
    """Run until the server sends no more, then send a signal; return how the process ended."""
    process = nursery.start(*arguments)
    try:
        assert planned.reached.wait(PATIENCE)
        os.kill(process, number)
        ended = nursery.wait()
    finally:
        planned.released.set()
    assert ended.out == ""
    return ended.code, ended.err

"""KV events over ZeroMQ, read by a subscriber that knows vLLM's published form and nothing else."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
import zmq

from glm_engine.cli import command_line
from glm_engine.core.errors import BadInputError
from glm_engine.server.kv_events import MAX_FRAME_BYTES, KvEventPublisher
from glm_engine.server.server_settings import Settings
from tests.reference.prefix_index import PrefixIndex
from tests.server.serving import PATIENCE_SECONDS
from tests.shapes import generator

ANNOUNCED = re.compile(r"^glm: KV events on (\S+), replay on (\S+)$", re.MULTILINE)
PAGE_SIZE = 16
OPTIONS = ("--num-pages", 24, "--max-seq", 128, "--max-batch", 4)
ANY_PORT = ("--kv-events", "tcp://127.0.0.1:0", "--kv-events-replay", "tcp://127.0.0.1:0")
NO_REPLAYS = ((b"",), (b"", b"7"), (b"", b"7" * 9), (b"", b"", b"", b""))
TOPIC = "kv@here@capitals"
NUM_CLIENTS, NUM_REQUESTS, NUM_FORETOLD = 8, 60, 16


class BlockStored(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class BlockRemoved(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    pass


class EventBatch(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


DECODER = msgspec.msgpack.Decoder(EventBatch)


def replay(socket, first):
    """Number and bytes of each batch from one on that a server has told until now.

    The end of the replay says that there are no more; the server publishes what waits before it
    answers.
    """
    socket.send_multipart((b"", first.to_bytes(8, "big")))
    while True:
        delimiter, number, batch = socket.recv_multipart()
        assert delimiter == b""
        if int.from_bytes(number, "big", signed=True) == -1:
            assert batch == b""
            return
        yield int.from_bytes(number, "big"), batch


def last_published(server):
    """The number of the last batch that a server has told until now, by a replay of all."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, PATIENCE_SECONDS * 1000)
        socket.connect(ANNOUNCED.search(server.log())[2])
        return max(number for number, _ in replay(socket, 0))


class Subscriber:
    """Follows a server by what it publishes, and by replays of what was published before."""

    def __init__(self, server):
        published, replayed = ANNOUNCED.search(server.log()).groups()
        self.context = zmq.Context()
        self.context.setsockopt(zmq.LINGER, 0)
        self.context.setsockopt(zmq.RCVTIMEO, PATIENCE_SECONDS * 1000)
        self.subscription = self.context.socket(zmq.SUB)
        self.subscription.subscribe(TOPIC.encode())
        self.subscription.connect(published)
        self.replays = self.context.socket(zmq.DEALER)
        self.replays.connect(replayed)
        self.index = PrefixIndex()
        self.batches = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.destroy()

    def received(self):
        """Number and bytes of the next batch of the subscription."""
        topic, number, batch = self.subscription.recv_multipart()
        assert (topic.decode(), len(number)) == (TOPIC, 8)
        return int.from_bytes(number, "big"), batch

    def catch_up(self):
        """Take in all that the server has told until now."""
        for number, batch in replay(self.replays, len(self.batches)):
            self.take(number, batch)

    def take(self, number, batch):
        assert number == len(self.batches), "a batch is missing or comes twice"
        self.batches.append(batch)
        made = DECODER.decode(batch)
        assert abs(made.ts - time.time()) < PATIENCE_SECONDS
        assert made.data_parallel_rank == 0
        for event in made.events:
            self.follow(event)

    def follow(self, event):
        if isinstance(event, BlockStored):
            self.index.store(
                event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size
            )
            assert (event.lora_id, event.lora_name, event.medium) == (None, None, "GPU")
        elif isinstance(event, BlockRemoved):
            self.index.remove(event.block_hashes)
        else:
            self.index.clear()


def prompts(random, count):
    """Token ids of up to six pages that share how they begin, two ways at every page."""
    for _ in range(count):
        num_pages = random.integers(1, 6)
        begin = random.integers(0, 2, num_pages).repeat(PAGE_SIZE)
        yield [*begin.tolist(), *random.integers(0, 2048, random.integers(1, PAGE_SIZE)).tolist()]


def cached_tokens(server, prompt):
    """Continue a prompt; the tokens of it that the server had."""
    fields = {"prompt": prompt, "max_tokens": 2, "ignore_eos": True}
    answer = server.http.post("/v1/completions", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def subscribed(server, subscriber):
    """Ask until a batch comes by the subscription: it takes a moment to be known."""
    for token in range(100):
        cached_tokens(server, [token] * (PAGE_SIZE + 1))
        if subscriber.subscription.poll(50):
            return subscriber.received()
    raise AssertionError("nothing comes by the subscription")


def test_a_subscriber_knows_what_the_page_pool_holds_after_random_traffic(start_server) -> None:
    server = start_server(*OPTIONS, *ANY_PORT, "--kv-events-topic", TOPIC)
    random = generator("kv events over ZeroMQ")
    with Subscriber(server) as subscriber:
        first, batch = subscribed(server, subscriber)
        for frames in NO_REPLAYS:
            subscriber.replays.send_multipart(frames)
        with ThreadPoolExecutor(NUM_CLIENTS) as clients:
            asked = [
                clients.submit(cached_tokens, server, one) for one in prompts(random, NUM_REQUESTS)
            ]
            assert sum(one.result() for one in asked) > 0
        server.wait_until_idle()
        subscriber.catch_up()
        index = subscriber.index
        assert len(index.prefixes) == server.gauges()["cached_pages"]
        assert server.metric("glm_evictions_total") > 0
        foretold = set()
        for prompt in prompts(random, NUM_FORETOLD):
            foretold.add(index.num_cached_tokens(prompt, PAGE_SIZE))
            assert cached_tokens(server, prompt) == index.num_cached_tokens(prompt, PAGE_SIZE)
            subscriber.catch_up()
        assert len(foretold) > 2
        published = [(first, batch)]
        while len(published) + first < len(subscriber.batches):
            published.append(subscriber.received())
        assert published == list(enumerate(subscriber.batches))[first:]
    assert server.log().count("invalid replay request") == len(NO_REPLAYS)


def test_a_frame_that_no_subscriber_sends_is_not_taken_in() -> None:
    """The peer that sends it is cut off before it is held; the next one is heard."""
    settings = Settings(kv_events="tcp://127.0.0.1:0", kv_events_replay="tcp://127.0.0.1:0")
    with KvEventPublisher(settings) as publisher, zmq.Context() as context:
        for size in (MAX_FRAME_BYTES + 1, MAX_FRAME_BYTES):
            with context.socket(zmq.DEALER) as peer:
                cut_off = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
                poller = zmq.Poller()
                for one in (publisher.replay, cut_off):
                    poller.register(one, zmq.POLLIN)
                peer.connect(publisher.replay.last_endpoint)
                peer.send_multipart((b"", bytes(size)))
                happened = dict(poller.poll(PATIENCE_SECONDS * 1000))
                peer.disable_monitor()
            wanted = cut_off if size > MAX_FRAME_BYTES else publisher.replay
            assert list(happened) == [wanted]
        assert len(publisher.replay.recv_multipart()[2]) == MAX_FRAME_BYTES


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = "tcp://{}:{}".format(*taken.getsockname())
        for more in ({"kv_events": endpoint}, {"kv_events_replay": endpoint}):
            settings = Settings(**{"kv_events": "tcp://127.0.0.1:0", **more})
            with pytest.raises(BadInputError, match=f"cannot publish on {endpoint}: .* in use"):
                KvEventPublisher(settings)


@pytest.mark.parametrize(
    ("endpoint", "is_said"),
    [("tcp://*:0", True), ("tcp://[::1]:0", False), ("tcp://127.0.0.1:0", False)],
)
def test_events_that_others_can_read_are_announced_so(endpoint, is_said) -> None:
    with KvEventPublisher(Settings(kv_events=endpoint)) as publisher:
        assert ("anyone who can reach" in publisher.greeting()) == is_said


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            ("--kv-events", "tcp://127.0.0.1"),
            "expected the form tcp://127.0.0.1:5557, got 'tcp://127.0.0.1'",
        ),
        (("--kv-events", "tcp://127.0.0.1:65536"), "5557, got 'tcp://127.0.0.1:65536'"),
        (("--kv-events", ""), "--kv-events: expected a value, got an empty string"),
        (("--kv-events", "--kv-events-topic="), "--kv-events-topic: expected a value"),
        (
            ("--kv-events-replay",),
            "--kv-events-replay needs --kv-events",
        ),
        (
            ("--kv-events-topic", "here"),
            "--kv-events-topic needs --kv-events",
        ),
        (
            ("--kv-events", "--no-prefix-cache"),
            "--kv-events needs the prefix cache: remove --no-prefix-cache",
        ),
        (("--kv-events", "tcp://192.0.2.1:0"), "cannot publish on tcp://192.0.2.1:0: "),
    ],
)
def test_what_cannot_be_is_one_line(options, line, capfd) -> None:
    assert command_line.main(["serve", "--port", "0", *options]) == 2
    written = capfd.readouterr().err
    assert line in written
    assert written.count("\n") == 1

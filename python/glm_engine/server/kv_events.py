"""What enters and leaves the prefix cache, published over ZeroMQ as vLLM's servers do.

Subscribers get [topic, sequence number, batch] of a PUB socket, and batches that they missed of a
ROUTER socket. The README of this folder has the form.
"""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
import zmq

from glm_engine.core import abi
from glm_engine.core.errors import BadInputError
from glm_engine.server.http.admission import is_loopback
from glm_engine.server.http.logs import error_output

if TYPE_CHECKING:
    from glm_engine.core.engine import Engine
    from glm_engine.server.server_settings import Settings
    from glm_engine.text.conversation import Json


MAX_QUEUED = 100_000
MAX_KEPT = 10_000
SEQUENCE_BYTES = 8
MAX_FRAME_BYTES = 4096
END_OF_REPLAY = (-1).to_bytes(SEQUENCE_BYTES, "big", signed=True)
RANK = 0
MEDIUM = "GPU"
log = structlog.get_logger("server")


def published(records: Any, tokens: Any) -> "list[Json]":
    """Return the events of a batch; pages that continue one another are told together."""
    events: list[Json] = []
    last_hash = None
    for (page_hash, parent_hash, kind, has_parent), ids in zip(
        records.tolist(), tokens.tolist(), strict=True
    ):
        if kind == abi.KV_STORED and has_parent and parent_hash == last_hash:
            events[-1]["block_hashes"].append(page_hash)
            events[-1]["token_ids"].extend(ids)
        elif kind == abi.KV_STORED:
            events.append(stored(page_hash, parent_hash if has_parent else None, ids))
        elif kind == abi.KV_REMOVED:
            events.append({"type": "BlockRemoved", "block_hashes": [page_hash], "medium": MEDIUM})
        else:
            events.append({"type": "AllBlocksCleared"})
        last_hash = page_hash if kind == abi.KV_STORED else None
    return events


def stored(page_hash: int, parent_hash: int | None, ids: list[int]) -> "Json":
    return {
        "type": "BlockStored",
        "block_hashes": [page_hash],
        "parent_block_hash": parent_hash,
        "token_ids": ids,
        "block_size": len(ids),
        "lora_id": None,
        "medium": MEDIUM,
        "lora_name": None,
    }


class KvEventPublisher:
    """Two bound sockets, and the thread that writes what the engine tells to them."""

    def __init__(self, settings: "Settings") -> None:
        self.topic = settings.kv_events_topic.encode()
        self.context = zmq.Context()
        self.socket = self.bound(zmq.PUB, str(settings.kv_events), MAX_QUEUED)
        self.replay: zmq.Socket[bytes] | None = None
        if settings.kv_events_replay:
            self.replay = self.bound(zmq.ROUTER, settings.kv_events_replay, MAX_KEPT + 1)
        self.kept: deque[tuple[bytes, bytes]] = deque(maxlen=MAX_KEPT)
        self.sequence = 0
        self.encode = msgspec.msgpack.Encoder().encode

    def __enter__(self) -> "KvEventPublisher":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)

    def bound(self, kind: int, endpoint: str, most_queued: int) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.set_hwm(most_queued)
        made.maxmsgsize = MAX_FRAME_BYTES
        made.ipv6 = "[" in endpoint
        try:
            made.bind(endpoint)
        except zmq.ZMQError as error:
            self.context.destroy(linger=0)
            reason = zmq.strerror(error.errno or 0)
            raise BadInputError(f"cannot publish on {endpoint}: {reason}") from error
        return made

    @contextlib.contextmanager
    def following(self, engine: "Engine") -> Iterator[None]:
        """Publish what this engine tells for as long as the block lasts."""
        error_output.write(self.greeting().encode())
        self.ending = os.eventfd(0)
        thread = threading.Thread(target=self.run, args=(engine,), name="glm-kv-events")
        thread.start()
        try:
            yield
        finally:
            os.eventfd_write(self.ending, 1)
            thread.join()
            os.close(self.ending)

    def greeting(self) -> str:
        sockets: list[Any] = [self.socket, self.replay]
        endpoints = [one.last_endpoint.decode() for one in sockets if one]
        line = f"glm: KV events on {', replay on '.join(endpoints)}\n"
        hosts = [one.removeprefix("tcp://").rpartition(":")[0].strip("[]") for one in endpoints]
        if all(map(is_loopback, hosts)):
            return line
        return (
            f"{line}glm: warning: anyone who can reach these addresses can read the tokens of all "
            "prompts\n"
        )

    def run(self, engine: "Engine") -> None:
        try:
            self.serve(engine)
        except Exception as error:
            log.error("KV events stopped", exc_info=error)

    def serve(self, engine: "Engine") -> None:
        poller = zmq.Poller()
        for one in filter(None, (self.ending, engine.kv_event_fd(), self.replay)):
            poller.register(one, zmq.POLLIN)
        is_ending = False
        while not is_ending:
            ready = dict(poller.poll())
            is_ending = self.ending in ready
            self.publish(engine)
            if self.replay and self.replay in ready:
                self.answer(self.replay, self.replay.recv_multipart())

    def publish(self, engine: "Engine") -> None:
        """Send all that the engine has to tell."""
        while True:
            records, tokens = engine.take_kv_events()
            if not len(records):
                return
            batch = self.encode([time.time(), published(records, tokens), RANK])
            number = self.sequence.to_bytes(SEQUENCE_BYTES, "big")
            self.sequence += 1
            self.kept.append((number, batch))
            self.socket.send_multipart((self.topic, number, batch))

    def answer(self, replay: zmq.Socket[bytes], request: list[bytes]) -> None:
        """Send the batches that are kept from a sequence number on, then the end's mark."""
        if len(request) != 3 or len(request[2]) != SEQUENCE_BYTES:
            log.warning("invalid replay request", frames=[len(frame) for frame in request])
            return
        client, delimiter, first = request
        for number, batch in self.kept:
            if number >= first:
                replay.send_multipart((client, delimiter, number, batch))
        replay.send_multipart((client, delimiter, END_OF_REPLAY, b""))

"""A server that streams prepared events at known times, and remembers what it was asked."""

import asyncio
import json
import threading
import time
from dataclasses import dataclass, field

from aiohttp import web

from glm_engine.cli.options import CAPITALS
from glm_engine.text.tokenizer import GlmTokenizer

MODEL = "prepared"
FOREVER = 3600.0


@dataclass
class Behaviour:
    """How the next requests are answered. Times are seconds."""

    delay: float = 0.0
    gap: float = 0.0
    answers_from: int = 0
    num_tokens: int | None = None
    refuses_every: int = 0
    status: int = 429
    cuts_off: bool = False
    hangs_up: bool = False
    closes_idle: bool = False
    stalls_after: int = 0
    error: str = ""
    piece: int = 0
    api_key: str = ""
    models: object = ""
    stalls_metrics: bool = False
    gauges: dict | None = None


@dataclass
class Seen:
    """One request as the server saw it, in monotonic seconds."""

    path: str
    body: dict
    began: float
    peer: int
    under_way: int
    ended: float = 0.0


@dataclass
class PreparedServer:
    """The application, run by a thread of its own on a free port of the loopback."""

    behaviour: Behaviour = field(default_factory=Behaviour)
    seen: list = field(default_factory=list)
    under_way: int = 0
    generated: int = 0
    looks: int = 0

    def __post_init__(self):
        self.tokenizer = GlmTokenizer(CAPITALS)
        self.loop = asyncio.new_event_loop()
        self.started, self.stopping = threading.Event(), None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        assert self.started.wait(60)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def reset(self, **behaviour):
        self.behaviour = Behaviour(**behaviour)
        self.seen.clear()

    def close(self):
        self.loop.call_soon_threadsafe(self.stopping.set)
        self.thread.join(60)
        assert not self.thread.is_alive()

    def serve(self):
        self.loop.run_until_complete(self.main())
        self.loop.close()

    async def main(self):
        self.stopping = asyncio.Event()
        application = web.Application()
        application.add_routes(
            [
                web.get("/v1/models", self.models),
                web.get("/metrics", self.metrics),
                web.get("/gauges", self.gauges),
                web.post("/tokenize", self.tokenize),
                web.post("/v1/completions", self.answer),
                web.post("/v1/chat/completions", self.answer),
            ]
        )
        runner = web.AppRunner(application, shutdown_timeout=1.0, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self.started.set()
        await self.stopping.wait()
        await runner.cleanup()

    async def models(self, request):
        wanted = self.behaviour.api_key
        if wanted and request.headers.get("Authorization") != f"Bearer {wanted}":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        return web.json_response(self.behaviour.models or {"data": [{"id": MODEL}]})

    async def metrics(self, _request):
        if self.behaviour.stalls_metrics and self.seen:
            await asyncio.sleep(FOREVER)
        lines = [
            "# TYPE glm_generated_tokens counter",
            f"glm_generated_tokens_total {self.generated}",
            "# TYPE process_cpu_seconds counter",
            f"process_cpu_seconds_total {self.generated * 50e-6}",
            "# TYPE glm_http_cpu_seconds counter",
            f"glm_http_cpu_seconds_total {self.generated * 20e-6}",
        ]
        return web.Response(text="\n".join(lines) + "\n")

    async def gauges(self, _request):
        self.looks += 1
        if self.behaviour.gauges is None:
            raise web.HTTPNotFound
        return web.json_response(self.behaviour.gauges)

    async def tokenize(self, request):
        asked = await request.json()
        assert asked["model"] == MODEL
        ids = self.tokenizer.encode(asked["prompt"], asked["add_special_tokens"])
        return web.json_response({"tokens": ids, "count": len(ids)})

    async def answer(self, request):
        self.under_way += 1
        body = await request.json()
        peer = request.transport.get_extra_info("peername")[1]
        seen = Seen(request.path, body, time.monotonic(), peer, self.under_way)
        self.seen.append(seen)
        try:
            return await self.answer_as_told(request, seen, len(self.seen))
        finally:
            self.under_way -= 1

    async def answer_as_told(self, request, seen, number):
        told, body = self.behaviour, seen.body
        if told.refuses_every and number % told.refuses_every == 0:
            return web.json_response({"error": {"message": "not now"}}, status=told.status)
        count = told.num_tokens or body["max_tokens"]
        self.generated += count
        stalls = told.stalls_after and number > told.stalls_after
        while len(self.seen) < told.answers_from:
            await asyncio.sleep(0.01)
        await asyncio.sleep(FOREVER if stalls else told.delay)
        if not body.get("stream"):
            await asyncio.sleep(told.gap * (count - 1))
            return web.json_response({"choices": [], "usage": usage(body, count)})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if told.hangs_up:
            request.transport.abort()
            return response
        for event in self.events(request.path, body, count):
            await write_in_pieces(response, event, told.piece)
            await asyncio.sleep(told.gap)
        return await self.finish(request, response, seen, count)

    def events(self, path, body, count):
        if "chat" in path:
            yield event_bytes({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for number in range(count):
            text = "é" if number % 2 else '"text":"'
            choice = {"delta": {"content": text}} if "chat" in path else {"text": text}
            yield event_bytes({"model": body["model"], "choices": [choice]})

    async def finish(self, request, response, seen, count):
        seen.ended = time.monotonic()
        if self.behaviour.error:
            await response.write(event_bytes({"error": {"message": self.behaviour.error}}))
        elif not self.behaviour.cuts_off:
            await response.write(event_bytes({"choices": [], "usage": usage(seen.body, count)}))
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        if self.behaviour.closes_idle:
            self.loop.call_soon(request.transport.close)
        return response


def usage(body, count):
    return {"prompt_tokens": len(body.get("prompt", "")), "completion_tokens": count}


def event_bytes(event):
    text = json.dumps({"id": "prepared-1", **event}, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


async def write_in_pieces(response, data, size):
    """Write bytes whole, or in pieces that split events and characters."""
    for begin in range(0, len(data), size or len(data)):
        await response.write(data[begin : begin + (size or len(data))])
        if size:
            await asyncio.sleep(0)

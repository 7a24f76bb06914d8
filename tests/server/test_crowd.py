"""500 clients a round, 200 of which go away at random: nothing is left of them."""

import asyncio
import random
from urllib.parse import urlsplit

import orjson
import psutil

from glm_engine.options import CAPITALS
from tests.server.raw import post

COUNTRIES = [row["country"] for row in orjson.loads((CAPITALS / "countries.json").read_bytes())]
NUM_CLIENTS = 500
NUM_LEAVING = 200
NUM_ROUNDS = 3
MOST_SECONDS_STAYED = 4
MOST_GROWTH_BYTES = 48 * 2**20


def request_of(number, max_tokens):
    fields = {
        "prompt": f"The capital of {COUNTRIES[number % len(COUNTRIES)]} is",
        "max_tokens": max_tokens,
        "temperature": 1.0,
        "seed": number,
        "ignore_eos": True,
        "stream": True,
    }
    return post("/v1/completions", fields)


async def streamed_text(address, number):
    """Return the whole text of one stream."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request_of(number, 8))
    data = await reader.readuntil(b"data: [DONE]")
    writer.close()
    assert data.startswith(b"HTTP/1.1 200 OK"), data[:200]
    lines = [line[6:] for line in data.splitlines() if line.startswith(b"data: {")]
    return "".join(orjson.loads(line)["choices"][0]["text"] for line in lines)


async def leave(address, number, seconds):
    """Ask for a long text and break the connection off after a while."""
    _, writer = await asyncio.open_connection(*address)
    writer.write(request_of(number, 1000))
    await asyncio.sleep(seconds)
    writer.transport.abort()


async def one_round(address, generator):
    leaving = set(generator.sample(range(NUM_CLIENTS), NUM_LEAVING))
    jobs = [
        leave(address, number, generator.uniform(0, MOST_SECONDS_STAYED))
        if number in leaving
        else streamed_text(address, number)
        for number in range(NUM_CLIENTS)
    ]
    texts = await asyncio.gather(*jobs)
    return {number: text for number, text in enumerate(texts) if number not in leaving}


def test_rounds_of_a_crowd(start_server) -> None:
    server = start_server()
    address = urlsplit(server.url)
    process = psutil.Process(server.process.pid)
    known, resident, files = {}, [], []
    for number in range(NUM_ROUNDS):
        texts = asyncio.run(one_round((address.hostname, address.port), random.Random(number)))
        server.wait_until_idle()
        assert len(texts) == NUM_CLIENTS - NUM_LEAVING
        assert all(known.get(one, text) == text for one, text in texts.items())
        known |= texts
        resident.append(process.memory_info().rss)
        files.append(process.num_fds())
    assert max(files) - min(files) <= 2, files
    assert resident[-1] - resident[0] < MOST_GROWTH_BYTES, resident
    assert server.stop() == 0
    assert "Traceback" not in server.log()

"""Many streams at once: each gets what it gets alone; those that leave leave nothing."""

import asyncio
import random

import httpx
import orjson

from glm_engine.cli.options import CAPITALS

COUNTRIES = [row["country"] for row in orjson.loads((CAPITALS / "countries.json").read_bytes())]
NUM_CLIENTS = 60
NUM_LEAVING = 25
LIMITS = httpx.Limits(max_connections=None)


def fields_of(number):
    """A mixture: greedy and sampled, short and long, with and without a stop text."""
    fields = {
        "prompt": f"The capital of {COUNTRIES[number]} is",
        "max_tokens": 8 + number % 5 * 6,
        "temperature": number % 2 * 1.2,
        "seed": number,
        "ignore_eos": True,
        "stream": True,
    }
    return {**fields, "stop": ["e"]} if number % 7 == 0 else fields


async def stream(client, fields, most_events=None):
    """Return the streamed text; leave after so many events."""
    text, count = "", 0
    async with client.stream("POST", "/v1/completions", json=fields) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            text += orjson.loads(line[6:])["choices"][0]["text"]
            count += 1
            if count == most_events:
                return None
    assert line == "" or line == "data: [DONE]"
    return text


async def run_all(url, jobs):
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=LIMITS) as client:
        return await asyncio.gather(*[stream(client, *job) for job in jobs])


async def run_alone(url, jobs):
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        return [await stream(client, *job) for job in jobs]


def test_each_stream_is_what_it_is_alone(server) -> None:
    jobs = [(fields_of(number),) for number in range(NUM_CLIENTS)]
    together = asyncio.run(run_all(server.url, jobs))
    chosen = random.Random(1).sample(range(NUM_CLIENTS), 20)
    alone = asyncio.run(run_alone(server.url, [jobs[number] for number in chosen]))
    assert [together[number] for number in chosen] == alone
    assert all(together)
    server.wait_until_idle()


def test_clients_that_leave_do_not_disturb_the_others(server) -> None:
    generator = random.Random(2)
    leaving = set(generator.sample(range(NUM_CLIENTS), NUM_LEAVING))
    jobs = [
        ({**fields_of(number), "max_tokens": 2000, "stop": None}, generator.randint(1, 6))
        if number in leaving
        else (fields_of(number),)
        for number in range(NUM_CLIENTS)
    ]
    texts = asyncio.run(run_all(server.url, jobs))
    server.wait_until_idle()
    staying = [number for number in range(NUM_CLIENTS) if number not in leaving]
    checked = generator.sample(staying, 10)
    alone = asyncio.run(run_alone(server.url, [jobs[number] for number in checked]))
    assert [texts[number] for number in checked] == alone
    assert all(texts[number] is None for number in leaving)

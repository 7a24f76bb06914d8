"""What the ledger of bits runs on one engine, through the C ABI alone, and the hashes of it.

A request's bits do not depend on the others in its batch, so every row comes out the same however
the steps fell. A batch is queued while a state of the synchronous calls keeps the engine busy, so
that its decode steps have all of its rows; `Recorder.remarks` says where they had not.
"""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from glm_engine.cli.options import KV_DTYPES
from glm_engine.core import abi
from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.core.errors import EngineError
from tools.bench.bits_models import Options

PAGE_SIZE = 16
NUM_DECODED = 3
SPARE_PAGES, SPARE_ROWS = 48, 64
SHORTEST, LONGEST = 1, 12
FEW_PAGES = 9
NUM_PREEMPTED, PREEMPTED_PROMPT, PREEMPTED_TOKENS = 6, 30, 24
COMMON_PREFIX = 50
MOST_SECONDS = 300
GATE_SECONDS = 0.001
BUSY_STEPS = 160
ALL_BATCHES = (1, 2, 3, 8, 13, 16, 17, 31, 33, 64, 65, 128, 200, 256)
SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.9, top_p=0.95, seed=11),
    Sampling(temperature=0.8, top_k=20, repetition_penalty=1.2, seed=5, num_logprobs=2),
    Sampling(frequency_penalty=0.5, presence_penalty=0.25, num_logprobs=4),
    Sampling(temperature=1.3, min_p=0.05, seed=7, num_logprobs=0),
)
Row = dict[str, str]


@dataclass(frozen=True)
class Courses:
    """lengths: prompts whose logits are taken at all positions; long_lengths: at the last one."""

    lengths: Sequence[int]
    long_lengths: Sequence[int]
    batches: Sequence[int]
    num_tokens: int
    max_seq: int
    max_step_tokens: int

    def options(self) -> Options:
        """Those of `EngineOptions`."""
        max_batch = max(*self.batches, NUM_PREEMPTED) + 1
        num_pages = 2 * max_batch + self.max_seq // PAGE_SIZE + SPARE_PAGES
        return {
            "max_batch": max_batch,
            "max_logit_rows": max_batch + SPARE_ROWS,
            "max_seq": self.max_seq,
            "max_step_tokens": self.max_step_tokens,
            "page_size": PAGE_SIZE,
            "num_pages": num_pages,
            "step_budget_ms": 0,
            "prefix_cache": True,
        }


SMALL = Courses((1, 13, 65), (65,), (1, 6), 4, 512, 256)
COURSES = {
    ("cpu", "small"): SMALL,
    ("cpu", "middle"): Courses((1, 13, 65, 300), (300,), (1, 3, 8, 17, 33), 4, 512, 512),
    ("cuda", "small"): SMALL,
    ("cuda", "middle"): Courses((1, 13, 65, 300), (300,), ALL_BATCHES, 4, 1024, 2048),
    ("cuda", "wide"): Courses((1, 24, 65, 300, 700), (700, 5000), ALL_BATCHES, 4, 6144, 2048),
    ("cuda", "full"): Courses((1, 65, 300), (300, 5000), ALL_BATCHES, 3, 6144, 2048),
}


def engine_options(options: Options) -> Options:
    """The options of a run with the number that the engine has for the type of its KV cache."""
    if "kv_dtype" not in options:
        return options
    return options | {"kv_dtype": KV_DTYPES[options["kv_dtype"]]}


def hash_of(*arrays: np.ndarray) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


@dataclass
class Recorder:
    """Runs courses on one engine; `remarks` says where a course did not go as meant."""

    engine: Engine
    remarks: list[str] = field(default_factory=list)

    def rows(self, courses: Courses) -> Iterator[tuple[str, Callable[[], Row]]]:
        """The name of each row, and the function that computes it."""
        for length in courses.lengths:
            yield f"prefill {length}", partial(self.prefill, length, True)
        for length in courses.long_lengths:
            yield f"prefill {length} last", partial(self.prefill, length, False)
        for size in courses.batches:
            yield f"batch {size}", partial(self.batch, size, courses)
        yield "preempted", self.preempted
        yield "cached prefix", self.cached_prefix

    def prefill(self, length: int, all_positions: bool) -> Row:
        """Of a prompt and of tokens that decode after it, one a step."""
        tokens = self.prompt(f"prefill {length}", length + NUM_DECODED)
        state, logits = self.engine.prefill(tokens[:length], all_positions)
        decoded = [self.engine.decode_step(state, token) for token in tokens[length:]]
        state.close()
        return {"logits": hash_of(logits), "decoded": hash_of(*decoded)}

    def batch(self, size: int, courses: Courses) -> Row:
        """Of requests that decode together, and of the tokens of the state before them."""
        requests = [
            self.request(f"batch {size}", index, courses.num_tokens) for index in range(size)
        ]
        num_busy = BUSY_STEPS // self.engine.info()["world_size"] + 2 * size
        self.engine.take_steps()
        row, alone = self.run_behind(num_busy, requests)
        most = max(step["num_decode_tokens"] for step in self.engine.take_steps())
        if most != size:
            self.remarks.append(f"batch {size}: the widest step had {most} rows")
        return row | {"alone": hash_of(alone)}

    def preempted(self) -> Row:
        """Of requests in a pool that has too few pages for all of them."""
        requests = [
            self.request("preempted", index, PREEMPTED_TOKENS, PREEMPTED_PROMPT)
            for index in range(NUM_PREEMPTED)
        ]
        info = self.engine.info()
        self.engine.resize_pool(FEW_PAGES)
        row = self.run(requests)
        self.engine.resize_pool(info["total_pages"])
        if self.engine.info()["num_preemptions"] == info["num_preemptions"]:
            self.remarks.append("preempted: no request was")
        return row

    def cached_prefix(self) -> Row:
        """Of prompts whose first pages another has left in the prefix cache."""
        prefix = self.prompt("cached prefix", COMMON_PREFIX)
        before = self.engine.info()["num_cached_tokens"]
        rows = []
        for tail in range(3):
            request = self.request("cached prefix", tail, 4)
            prompt = [*prefix, *request.prompt]
            rows.append(self.run([Request(**{**vars(request), "prompt": prompt})]))
        if self.engine.info()["num_cached_tokens"] == before:
            self.remarks.append("cached prefix: no token was")
        return {part: " ".join(row[part] for row in rows) for part in rows[0]}

    def prompt(self, course: str, length: int) -> list[int]:
        draw = random.Random(course)
        return [draw.randrange(self.engine.vocab_size) for _ in range(length)]

    def request(self, course: str, index: int, num_tokens: int, length: int = 0) -> Request:
        """One of a batch: greedy, drawn, with penalties, log-probabilities or a bias."""
        length = length or SHORTEST + 7 * index % LONGEST
        return Request(
            prompt=self.prompt(f"{course} {index}", length),
            max_tokens=num_tokens,
            sampling=SAMPLINGS[index % len(SAMPLINGS)],
            ignore_eos=True,
            biases={0: 1.5} if index % 7 == 3 else {},
            num_prompt_logprobs=2 if index % 11 == 4 else -1,
        )

    def run_behind(self, num_busy: int, requests: Sequence[Request]) -> tuple[Row, np.ndarray]:
        """Queue the requests while one state decodes `num_busy` tokens; return those, too."""
        state, _ = self.engine.prefill(self.prompt("alone", 1))
        sampling, tokens = Sampling(temperature=1.0, seed=3), list[np.ndarray]()

        def decode() -> None:
            tokens.append(self.engine.run_batch_decode([state], [sampling], num_busy))

        busy = threading.Thread(target=decode)
        busy.start()
        time.sleep(GATE_SECONDS)
        try:
            row = self.run(requests)
        finally:
            busy.join()
            state.close()
        return row, tokens[0]

    def run(self, requests: Sequence[Request]) -> Row:
        """Run requests to their ends, all queued at once."""
        most = max(request.max_tokens for request in requests)
        logits = np.zeros((len(requests), most, self.engine.vocab_size), np.float32)
        found: dict[int, list[np.ndarray]] = {}
        for request, rows in zip(requests, logits, strict=True):
            wanted = {**vars(request), "logits": rows, "logits_capacity": most}
            found[self.engine.submit(Request(**wanted))] = []
        self.wait_for(found)
        events = [np.concatenate(parts) for parts in found.values()]
        tokens = [one["token_id"][one["kind"] == abi.EVENT_TOKEN] for one in events]
        listed = [
            part for one in zip(requests, events, strict=True) for part in log_probabilities(*one)
        ]
        row = {"logits": hash_of(logits), "tokens": hash_of(*tokens)}
        return row | ({"logprobs": hash_of(*listed)} if listed else {})

    def wait_for(self, found: dict[int, list[np.ndarray]]) -> None:
        """File events until each request has ended; raises `EngineError` for one that fails."""
        left, deadline = len(found), time.monotonic() + MOST_SECONDS
        while left:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} of {len(found)} requests did not end")
            self.engine.wait(1.0)
            for record in np.split(records := self.engine.poll_records(), len(records) or 1):
                left -= take(record, found) if len(record) else 0


def take(record: np.ndarray, found: dict[int, list[np.ndarray]]) -> bool:
    """File the array of one event; say whether it ended its request."""
    [event] = record
    if event["kind"] == abi.EVENT_FAILED:
        raise EngineError("engine_poll", int(event["status"]), event["message"].decode())
    found[int(event["request_id"])].append(record)
    return bool(event["kind"] == abi.EVENT_FINISHED)


def log_probabilities(request: Request, events: np.ndarray) -> Iterator[np.ndarray]:
    """The log-probabilities that a request asked for, and the tokens that they are of."""
    asked = {
        abi.EVENT_TOKEN: request.sampling.num_logprobs,
        abi.EVENT_PROMPT_TOKEN: request.num_prompt_logprobs,
    }
    for kind, most in asked.items():
        for event in events[events["kind"] == kind] if most >= 0 else ():
            count = event["num_logprobs"]
            yield np.array([event["logprob"]])
            yield event["top_ids"][:count]
            yield event["top_logprobs"][:count]

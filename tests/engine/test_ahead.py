"""Steps planned ahead, staged and replayed from graphs give the bits of plain steps.

The CPU device stands behind a queue: operations run only when somebody waits, graphs are lists of
recorded operations. So an upload that reads its host memory too late, an argument that changes
between capture and replay, or a step that uses what the host does not know yet shows.
"""

import ctypes
import itertools
import random
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

from glm_engine.core.engine import Engine, EngineOptions, Request, Sampling
from glm_engine.core.errors import EngineError
from tests.engine.masking import Masks, run_masked, words_of
from tests.engine.probes import ROOT
from tests.engine.running import run_requests

CAPITALS = ROOT / "checkpoints" / "capitals"
INNER = ROOT / "build" / "libglm_cpu.so"
FOLDER = ROOT / "build" / "tests" / "queued"
NUM_LAYERS, NUM_DENSE_LAYERS = 4, 1
COURSES = [
    {"graphs": False, "plan_ahead": False},
    {"graphs": True, "plan_ahead": False},
    {"graphs": False, "plan_ahead": True},
    {"graphs": True, "plan_ahead": True},
]

LAST = Request([1], max_tokens=60, ignore_eos=True)

pytestmark = pytest.mark.timeout(240)


@cache
def library() -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(FOLDER / "libglm_cpu.so"))
    loaded.queued_open.argtypes = [ctypes.c_char_p, ctypes.c_int32]
    loaded.queued_open.restype = None
    loaded.queued_replays.restype = ctypes.c_int64
    return loaded


@contextmanager
def queued_engine(merges_shared_expert=False, **options):
    library().queued_open(str(INNER).encode(), merges_shared_expert)
    defaults = {"max_batch": 6, "max_seq": 96, "num_threads": 2, "max_step_tokens": 48}
    chosen = EngineOptions(
        model_dir=CAPITALS, device="cpu", library_dir=FOLDER, **{**defaults, **options}
    )
    with Engine(chosen) as engine:
        yield engine


def random_sampling(generator: random.Random) -> Sampling:
    return Sampling(
        temperature=generator.choice([0.0, 0.7, 1.5]),
        top_k=generator.choice([0, 5]),
        repetition_penalty=generator.choice([1.0, 1.3]),
        frequency_penalty=generator.choice([0.0, 0.4]),
        num_logprobs=generator.choice([-1, -1, 3]),
        seed=generator.randrange(2**32),
    )


def random_requests(seed: int, count: int, vocab_size: int) -> list[Request]:
    generator = random.Random(seed)
    return [random_request(generator, vocab_size) for _ in range(count)]


def random_request(generator: random.Random, vocab_size: int) -> Request:
    num_stops = generator.choice([0, 400])
    return Request(
        [generator.randrange(vocab_size) for _ in range(generator.randrange(1, 40))],
        max_tokens=generator.randrange(30),
        sampling=random_sampling(generator),
        num_prompt_logprobs=generator.choice([-1, -1, 0, 3]),
        stop_tokens=[generator.randrange(vocab_size) for _ in range(num_stops)],
        biases={generator.randrange(vocab_size): 2.0} if generator.random() < 0.2 else {},
    )


def outcome(engine: Engine, requests) -> list:
    return results_of(run_requests(engine, requests))


def logprobs_of(events) -> list:
    return [(event.logprob, event.top_logprobs) for event in events]


def results_of(finished) -> list:
    return [
        (one.tokens, one.finish_reason, logprobs_of(one.events), logprobs_of(one.prompt_events))
        for one in finished
    ]


@pytest.mark.parametrize(("num_pages", "world_size"), [(0, 1), (14, 1), (14, 2)])
def test_every_course_gives_the_same_bits(num_pages, world_size, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    outcomes = []
    for course in COURSES:
        with queued_engine(num_pages=num_pages, world_size=world_size, **course) as engine:
            requests = [*random_requests(seed, 24, engine.vocab_size), LAST]
            outcomes.append(outcome(engine, requests))
            info = engine.info()
            assert info["plans_ahead"] == course["plan_ahead"]
            assert (info["num_graph_steps"] > 0) == course["graphs"]
            assert info["owned_pages"] == 0
    for course, one in zip(COURSES[1:], outcomes[1:], strict=True):
        assert one == outcomes[0], f"{course} differs from plain steps, seed {seed}"


@pytest.mark.parametrize("num_pages", [0, 14])
def test_every_course_gives_the_same_bits_under_masks(num_pages, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    outcomes = []
    for course in COURSES:
        with queued_engine(num_pages=num_pages, **course) as engine:
            requests = random_requests(seed, 18, engine.vocab_size)
            masks = [random_masks(seed, i, engine.vocab_size) for i in range(len(requests))]
            outcomes.append(results_of(run_masked(engine, requests, masks)))
            assert (engine.info()["num_graph_steps"] > 0) == course["graphs"]
    for course, one in zip(COURSES[1:], outcomes[1:], strict=True):
        assert one == outcomes[0], f"{course} differs from plain steps, seed {seed}"


@pytest.mark.parametrize("world_size", [1, 2])
def test_masks_that_come_late_change_no_bit(world_size, record_property):
    seed = random.randrange(2**32)
    record_property("seed", seed)
    outcomes = []
    for course, share in [(COURSES[0], 0.0), (COURSES[0], 0.6), (COURSES[3], 0.6)]:
        with queued_engine(world_size=world_size, **course) as engine:
            requests = random_requests(seed, 12, engine.vocab_size)
            masks = [random_masks(seed, i, engine.vocab_size) for i in range(len(requests))]
            outcomes.append(results_of(run_masked(engine, requests, masks, keeps(seed, share))))
            assert engine.info()["num_late_masks"] > 0 or share == 0
            assert engine.info()["owned_pages"] == 0
    assert outcomes[1] == outcomes[0], f"late masks change the bits, seed {seed}"
    assert outcomes[2] == outcomes[0], f"late masks change the bits planned ahead, seed {seed}"


def keeps(seed: int, share: float) -> Callable[[], bool]:
    """Keeps back that share of all masks, at random."""
    generator = random.Random(seed)
    return lambda: generator.random() < share


def random_masks(seed: int, index: int, vocab_size: int) -> Masks | None:
    """Every third request has no masks; of the others' tokens every fourth is free."""
    if index % 3 == 0:
        return None

    def mask(tokens: list[int]) -> np.ndarray | None:
        if len(tokens) % 4 == 3:
            return None
        key = (seed, index, len(tokens))
        return words_of(np.random.default_rng(key).random(vocab_size) < 0.05)

    return mask


def test_graphs_are_captured_for_every_batch_size_and_replayed():
    with queued_engine(graphs=True, max_batch=5) as engine:
        before = library().queued_replays()
        assert engine.info()["num_graphs"] == 5
        run_requests(engine, [Request([3, 4, 5], max_tokens=9, ignore_eos=True)])
        info = engine.info()
        assert info["num_graph_steps"] == 8
        assert library().queued_replays() - before == 8


def test_ranks_replay_graphs_together_or_not_at_all():
    request = Request([3, 4, 5], max_tokens=9, ignore_eos=True)
    with queued_engine(graphs=True, max_batch=5, world_size=2) as engine:
        before = library().queued_replays()
        [replayed] = run_requests(engine, [request])
        assert library().queued_replays() - before == 2 * 8
        before = library().queued_replays()
        engine.begin_profile()
        [profiled] = run_requests(engine, [request])
        engine.end_profile()
        assert library().queued_replays() == before
        assert profiled.tokens == replayed.tokens


def test_a_stop_wastes_one_row_and_changes_nothing_else():
    with queued_engine(plan_ahead=False) as engine:
        plain = run_requests(engine, [Request([7, 8, 9], max_tokens=12, ignore_eos=True)])[0]
    stop = plain.tokens[5]
    first = plain.tokens.index(stop)
    with queued_engine(plan_ahead=True) as engine:
        request = Request([7, 8, 9], max_tokens=12, stop_tokens=[stop], ignore_eos=True)
        ahead = run_requests(engine, [request])[0]
        assert ahead.tokens == plain.tokens[: first + 1]
        assert ahead.finish_reason == "stop_token"
        assert engine.info()["num_dropped_rows"] == 1


def test_reaching_max_tokens_wastes_no_row():
    with queued_engine(plan_ahead=True) as engine:
        run_requests(engine, [Request([7, 8], max_tokens=6, ignore_eos=True) for _ in range(4)])
        assert engine.info()["num_dropped_rows"] == 0


def test_both_faces_together():
    with queued_engine(plan_ahead=True, graphs=True) as engine:
        ids = [
            engine.submit(Request([5, 6, 7 + i], max_tokens=40, ignore_eos=True)) for i in range(2)
        ]
        state, logits = engine.prefill([9, 10, 11])
        for token in (1, 2, 3):
            logits = engine.decode_step(state, token)
        ended = set()
        while len(ended) < len(ids):
            engine.wait(0.1)
            ended |= {event.request_id for event in engine.poll() if event.ends_request}
    with queued_engine(plan_ahead=False) as engine:
        state, _ = engine.prefill([9, 10, 11])
        plain = [engine.decode_step(state, token) for token in (1, 2, 3)][-1]
    assert np.array_equal(logits, plain)


@pytest.mark.parametrize("order", ["cancel", "preempt"])
def test_orders_while_a_step_is_in_flight(order):
    prompts = [[11, 12, 13 + index] for index in range(4)]
    with queued_engine(plan_ahead=False) as engine:
        plain = run_requests(engine, [Request(p, max_tokens=40, ignore_eos=True) for p in prompts])
    with queued_engine(plan_ahead=True, graphs=True) as engine:
        ids = [engine.submit(Request(p, max_tokens=40, ignore_eos=True)) for p in prompts]
        tokens, ended = {one: [] for one in ids}, {}
        for turn in itertools.count():
            engine.wait(0.05)
            for event in engine.poll():
                if event.kind == "token":
                    tokens[event.request_id].append(event.token_id)
                else:
                    ended[event.request_id] = event.finish_reason
            if len(ended) == len(ids):
                break
            if turn % 3 == 1 and ids[1] not in ended:
                try:
                    getattr(engine, order)(ids[1])
                except EngineError:
                    assert ids[1] in ended or turn > 0
        info = engine.info()
        assert info["owned_pages"] == 0
    for one, expected in zip(ids, plain, strict=True):
        count = len(tokens[one])
        assert tokens[one] == expected.tokens[:count]
        assert count == 40 or (one == ids[1] and order == "cancel")


def test_a_profile_names_the_operations_and_their_times():
    with queued_engine(plan_ahead=True, graphs=True) as engine:
        engine.begin_profile()
        run_requests(engine, [Request([5, 6, 7], max_tokens=6, ignore_eos=True)])
        profile = engine.end_profile()
        calls = {row["name"]: row["num_calls"] for row in profile["operations"]}
        layers = engine.info()["num_layers"]
        assert profile["num_steps"] == 6
        assert calls["attention"] == 6 * layers
        assert calls["linear qkv"] == 6 * layers
        assert calls["sample"] == 6
        assert all(row["nanoseconds"] >= 0 for row in profile["operations"])
        with pytest.raises(EngineError, match="no profile is running"):
            engine.end_profile()


def test_the_last_layer_leaves_out_rows_that_nobody_reads():
    with queued_engine(plan_ahead=True, graphs=True, max_step_tokens=16) as engine:
        engine.begin_profile()
        run_requests(engine, [Request(list(range(5, 45)), max_tokens=1, ignore_eos=True)])
        profile = engine.end_profile()
        in_all_layers = profile["num_steps"] * engine.info()["num_layers"]
    calls = {row["name"]: row["num_calls"] for row in profile["operations"]}
    steps_without_logits = 2
    assert profile["num_steps"] == steps_without_logits + 1
    assert calls["linear qkv"] == calls["norm_rope_store"] == in_all_layers
    assert calls["attention"] == calls["linear output"] == in_all_layers - steps_without_logits
    in_dense_layers = NUM_DENSE_LAYERS * profile["num_steps"]
    assert calls["experts"] == in_all_layers - steps_without_logits - in_dense_layers
    assert calls["select rows"] == 2
    assert calls["logits"] == 1


def test_steps_are_recorded():
    with queued_engine(plan_ahead=True, graphs=True) as engine:
        run_requests(engine, [Request([5, 6, 7], max_tokens=6, ignore_eos=True)])
        steps = engine.take_steps()
        assert [step["num_tokens"] for step in steps] == [3, 1, 1, 1, 1, 1]
        assert [step["is_graph"] for step in steps] == [0, 1, 1, 1, 1, 1]
        assert engine.take_steps() == []


def first_logprobs(engine: Engine) -> tuple[list[int], np.ndarray]:
    """Best ids after a prompt, and their log-probabilities."""
    sampling = Sampling(num_logprobs=20)
    prompt = Request([5, 6, 7, 8, 9], max_tokens=1, sampling=sampling, ignore_eos=True)
    best = run_requests(engine, [prompt])[0].events[0].top_logprobs
    return [token for token, _ in best], np.array([value for _, value in best])


def blocks_of_a_step(engine: Engine) -> tuple[float, float]:
    """How many gated blocks and how many mixtures rank 0 runs in a step."""
    engine.begin_profile()
    run_requests(engine, [Request([5, 6, 7], max_tokens=3, ignore_eos=True)])
    profile = engine.end_profile()
    calls = {row["name"]: row["num_calls"] / profile["num_steps"] for row in profile["operations"]}
    return calls["swiglu_quantise"], calls["experts"]


@pytest.mark.parametrize("layout", ["tensor_parallel", "expert_parallel"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_a_shared_expert_among_the_routed_ones_gives_the_same_logits(world_size, layout):
    results = []
    options = {"world_size": world_size, "expert_layout": layout}
    for merges in (False, True):
        with queued_engine(merges_shared_expert=merges, **options) as engine:
            results.append((*first_logprobs(engine), *blocks_of_a_step(engine)))
    apart, merged = results
    assert apart[0] == merged[0]
    np.testing.assert_allclose(apart[1], merged[1], rtol=0, atol=5e-5)
    assert apart[2] == NUM_LAYERS
    assert merged[2] == NUM_DENSE_LAYERS
    assert apart[3] == merged[3] == NUM_LAYERS - NUM_DENSE_LAYERS

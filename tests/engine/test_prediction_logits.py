"""The prediction layer's logits against the oracle, and the model's bits beside it."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from glm_engine.core.engine import Engine, Request, Sampling
from glm_engine.core.errors import EngineError
from tests.devices import fewest_scattered_rows, is_rounded
from tests.engine.running import Finished, open_engine, preempt_unless_ended, run_requests
from tests.engine.test_world_sizes import BASE
from tests.golden_checks import BF16_ROUTE_MARGIN, close_routes, distance, passes
from tests.reference.capitals import CAPITALS
from tests.reference.capitals import prompts as capital_prompts
from tests.reference.cases import CAPITALS_NAME, CASES, kind_of, texts_of, world_sizes
from tests.reference.checkpoint import read_checkpoint
from tests.reference.compare import EndToEnd, Kind, measure
from tests.reference.golden import ONE_RANK, Split
from tests.reference.model import ExpertLayout, Options, Trace
from tests.reference.models import write_prediction_model
from tests.reference.prediction import PredictionModel, read_prediction_model
from tests.reference.variants import PredictionVariant
from tests.shapes import generator
from tools.checkpoint.random_model import small_config, write_random_model

NUM_TOKENS = 8
ATTEMPTS = 50
WHOLE = {"max_batch": 8, "page_size": 4, "prefix_cache": False}
CHUNKS = {**WHOLE, "prefill_chunk": 7}
CAPITALS_VOCABULARY = 2048
SAMPLED = Sampling(temperature=1.0, seed=11)
FEW_TOKENS = {3: 50.0, 7: 50.0, 11: 50.0}
LIMITS = {
    Kind.RANDOM_W8A8_FLOAT32: EndToEnd(mean_rms=0.02),
    Kind.RANDOM_W8A8_BF16: EndToEnd(mean_rms=0.06),
}
SPLITS = [
    (name, Split(world_size, layout))
    for name in CASES
    for world_size in world_sizes(name)
    for layout in ExpertLayout
    if world_size > 1 or layout is ONE_RANK.expert_layout
]
PLAIN = ["bf16_like_4_7", "bf16_like_air", "bf16_odd_sizes_no_shared"]
WRONG = [variant for variant in PredictionVariant if variant is not PredictionVariant.CORRECT]

LABEL = operator.attrgetter("label")

every_split = pytest.mark.parametrize(
    ("name", "split"), SPLITS, ids=lambda part: getattr(part, "label", part)
)


@pytest.fixture(scope="module")
def checkpoint_of(tmp_path_factory) -> Callable:
    """Name of a case → its checkpoint with a prediction layer."""
    directory = tmp_path_factory.mktemp("prediction")
    kept: dict[tuple, Path] = {(CAPITALS_NAME, False): CAPITALS}

    def checkpoint(name: str, has_own_vocabulary: bool = False) -> Path:
        key = (name, has_own_vocabulary)
        if key not in kept:
            kept[key] = write_prediction_model(name, directory, has_own_vocabulary)
        return kept[key]

    return checkpoint


@dataclass(frozen=True)
class Drafted:
    """A request's tokens, and the layer's logits behind those outputs where it drafted."""

    prompt: Sequence[int]
    result: Finished
    outputs: list[int]
    rows: np.ndarray

    @property
    def text(self) -> list[int]:
        return [*self.prompt, *self.result.tokens]

    @property
    def positions(self) -> list[int]:
        return [len(self.prompt) - 1 + output for output in self.outputs]


def prompts_of(name: str) -> list[Sequence[int]]:
    return capital_prompts()[::12] if name == CAPITALS_NAME else texts_of(name)


def run_drafted(
    engine: Engine,
    prompts: Iterable[Sequence[int]],
    run: Callable[[Engine, Sequence[Request]], list[Finished]] = run_requests,
    **options,
) -> list[Drafted]:
    """Requests in flight together, and the layer's logits behind each output token.

    Behind the end of an answer of capitals both implementations are chaotic, so it ends there.
    """
    requests = [
        Request(
            prompt,
            NUM_TOKENS,
            ignore_eos=engine.vocab_size < CAPITALS_VOCABULARY,
            logits=np.zeros((NUM_TOKENS, engine.vocab_size), np.float32),
            draft_logits=np.full((NUM_TOKENS, engine.vocab_size), np.nan, np.float32),
            logits_capacity=NUM_TOKENS,
            **options,
        )
        for prompt in prompts
    ]
    results = run(engine, requests)
    return [drafted(*pair) for pair in zip(requests, results, strict=True)]


def drafted(request: Request, result: Finished) -> Drafted:
    is_drawn = ~np.isnan(request.draft_logits).all(axis=1)
    outputs = np.flatnonzero(is_drawn).tolist()
    assert outputs, "the layer drafted nothing"
    return Drafted(request.prompt, result, outputs, request.draft_logits[is_drawn])


def oracle(directory: Path, split: Split = ONE_RANK) -> PredictionModel:
    options = Options(world_size=split.world_size, expert_layout=split.expert_layout)
    return read_prediction_model(read_checkpoint(directory), options)


def expected_rows(model: PredictionModel, drafts: Drafted) -> np.ndarray:
    """The oracle's rows; of two choices of experts that nearly tie in BF16, the nearer."""
    trace, number = Trace(), len(model.model.layers)
    expected = model.logits(drafts.text, trace)[drafts.positions]
    close = close_routes(trace, len(drafts.prompt) - 1, BF16_ROUTE_MARGIN) if is_rounded() else []
    for layer, changed in passes(close, number):
        other = model.logits(drafts.text, other_routes={layer: changed})
        for index, position in enumerate(drafts.positions):
            if position in changed:
                both = (expected[index], other[position])
                expected[index] = min(both, key=partial(distance, drafts.rows[index]))
    return expected


def failures(name: str, model: PredictionModel, found: Sequence[Drafted]) -> list[str]:
    kind = kind_of(name, is_rounded())
    expected = [expected_rows(model, drafts) for drafts in found]
    return measure([drafts.rows for drafts in found], expected).failures(
        LIMITS.get(kind, kind.value)
    )


def same_rows(one: Sequence[Drafted], other: Sequence[Drafted]) -> bool:
    """Whether both drew the same tokens, and the same bits behind the outputs of both."""
    for first, second in zip(one, other, strict=True):
        shared = sorted(set(first.outputs) & set(second.outputs))
        rows = [
            drafts.rows[[drafts.outputs.index(output) for output in shared]]
            for drafts in (first, second)
        ]
        if not shared or first.text != second.text or not np.array_equal(*rows):
            return False
    return True


@every_split
def test_the_layer_gives_the_oracles_logits(name, split, checkpoint_of):
    directory, model = checkpoint_of(name), oracle(checkpoint_of(name), split)
    with open_engine(directory, split, speculate="mtp", **WHOLE) as engine:
        whole = run_drafted(engine, prompts_of(name))
    with open_engine(directory, split, speculate="mtp", **CHUNKS) as engine:
        cut = run_drafted(engine, prompts_of(name))
    assert not failures(name, model, whole)
    assert same_rows(whole, cut)


@pytest.mark.parametrize("name", ["bf16_like_4_7", "fp8_odd_sizes"])
def test_the_layers_own_embedding_and_head_are_used(name, checkpoint_of):
    directory = checkpoint_of(name, has_own_vocabulary=True)
    with open_engine(directory, speculate="mtp", **CHUNKS) as engine:
        found = run_drafted(engine, prompts_of(name))
    assert not failures(name, oracle(directory), found)
    assert failures(name, oracle(checkpoint_of(name)), found)


@pytest.mark.parametrize("split", [ONE_RANK, Split(2)], ids=LABEL)
@pytest.mark.parametrize("plan_ahead", [False, True])
@pytest.mark.parametrize("name", ["bf16_like_4_7", "fp8_like_4_7"])
def test_accepted_and_rejected_drafts_leave_the_right_entries(
    name, plan_ahead, split, checkpoint_of
):
    directory = checkpoint_of(name)
    options = {**CHUNKS, "plan_ahead": plan_ahead}
    with open_engine(directory, split, speculate="mtp", **options) as engine:
        found = run_drafted(engine, prompts_of(name), sampling=SAMPLED, biases=FEW_TOKENS)
        info = engine.info()
    assert 0 < info["num_accepted_tokens"] < info["num_draft_tokens"]
    assert not failures(name, oracle(directory, split), found)


def run_preempting(engine: Engine, requests: Sequence[Request]) -> list[Finished]:
    """Runs them with the first one preempted and restored after its second token.

    A request can end before it is preempted; then it runs once more.
    """
    for _attempt in range(ATTEMPTS):
        found = run_preempted(engine, requests[0])
        if engine.info()["num_preemptions"] > 0:
            break
    return [found, *run_requests(engine, requests[1:])]


def run_preempted(engine: Engine, request: Request) -> Finished:
    number, found = engine.submit(request), Finished()
    has_ended = False
    while not has_ended:
        engine.wait(0.1)
        for event in engine.poll():
            if event.kind == "token":
                found.tokens.append(event.token_id)
            if len(found.tokens) == 2 and event.kind == "token":
                preempt_unless_ended(engine, number)
            has_ended = has_ended or event.kind == "finished"
    return found


@pytest.mark.parametrize("name", ["bf16_like_4_7", "fp8_odd_sizes"])
def test_preemption_keeps_the_layers_entries(name, checkpoint_of):
    directory, prompts = checkpoint_of(name), [prompts_of(name)[-1]]
    with open_engine(directory, speculate="mtp", **CHUNKS) as engine:
        kept = run_drafted(engine, prompts)
        preempted = run_drafted(engine, prompts, run_preempting)
        assert engine.info()["num_preemptions"] > 0
    assert same_rows(kept, preempted)


@pytest.mark.parametrize("name", PLAIN)
def test_wrong_variants_are_rejected(name, checkpoint_of):
    directory = checkpoint_of(name)
    with open_engine(directory, speculate="mtp", **CHUNKS) as engine:
        found = run_drafted(engine, prompts_of(name))
    model = oracle(directory)
    assert not failures(name, model, found)
    wrong = [replace(model, variant=variant) for variant in WRONG]
    taken = [model.variant.name for model in wrong if not failures(name, model, found)]
    assert not taken


def logprobs_of(result: Finished) -> list:
    return [(event.logprob, event.top_logprobs) for event in result.events]


@every_split
def test_the_model_keeps_its_bits_beside_the_layer(name, split, checkpoint_of):
    directory, found = checkpoint_of(name), []
    sampling = Sampling(temperature=0.8, seed=11, num_logprobs=2, frequency_penalty=0.1)
    for speculate, options in (("off", WHOLE), ("mtp", WHOLE), ("mtp", CHUNKS)):
        with open_engine(directory, split, speculate=speculate, **options) as engine:
            logits = [np.zeros((NUM_TOKENS, engine.vocab_size), np.float32) for _ in range(2)]
            requests = [
                Request(
                    prompt,
                    NUM_TOKENS,
                    sampling=sampling,
                    ignore_eos=True,
                    logits=rows,
                    logits_capacity=NUM_TOKENS,
                    num_prompt_logprobs=1,
                )
                for prompt, rows in zip(prompts_of(name)[-2:], logits, strict=True)
            ]
            results = run_requests(engine, requests)
            state, last = engine.prefill(requests[0].prompt)
            after = engine.decode_step(state, 3)
            state.close()
        found.append(
            (
                [result.tokens for result in results],
                [logprobs_of(result) for result in results],
                [[event.logprob for event in result.prompt_events] for result in results],
                [rows.tobytes() for rows in (*logits, last, after)],
            )
        )
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize(
    "split", [split for name, split in SPLITS if name == "fp8_eight_ranks"][1:], ids=LABEL
)
def test_scattered_prompts_leave_the_same_entries(split, tmp_path):
    fewest = fewest_scattered_rows()
    config = small_config(fp8=True, **{**BASE, "num_nextn_predict_layers": 1, "vocab_size": 200})
    write_random_model(tmp_path, config, seed=31)
    lengths = (fewest - 1, fewest, fewest + 3, 2 * fewest - 1)
    prompts = [generator("scattered", length).integers(200, size=length) for length in lengths]
    sizes = {**WHOLE, "max_seq": 4 * fewest, "max_step_tokens": 2 * fewest}
    found = []
    for chunk in (0, fewest - 5):
        options = {**sizes, "prefill_chunk": chunk, "max_batch": 1}
        with open_engine(tmp_path, split, speculate="mtp", **options) as engine:
            found.append(run_drafted(engine, [prompt.tolist() for prompt in prompts]))
    assert same_rows(*found)


def test_profiles_name_the_layers_operations(checkpoint_of):
    with open_engine(checkpoint_of("fp8_like_4_7"), speculate="mtp", **WHOLE) as engine:
        engine.begin_profile()
        run_drafted(engine, prompts_of("fp8_like_4_7"))
        names = {row["name"] for row in engine.end_profile()["operations"]}
    layer = {name.removeprefix("prediction: ") for name in names if name.startswith("prediction: ")}
    assert layer >= {"begin_drafts", "embed_norm_concat", "linear joint", "experts", "logits"}
    assert layer >= {"sample", "keep_drafts"}
    assert "linear joint" not in names


def test_the_layer_runs_with_each_operation_checked(checkpoint_of):
    directory, prompts = checkpoint_of("fp8_like_4_7"), prompts_of("fp8_like_4_7")
    found = []
    for check_operations in (False, True):
        options = {**CHUNKS, "check_operations": check_operations}
        with open_engine(directory, speculate="mtp", **options) as engine:
            found.append(run_drafted(engine, prompts))
    assert same_rows(*found)


def test_draft_logits_without_the_layer_are_refused(checkpoint_of):
    rows = np.zeros((1, 197), np.float32)
    request = Request([1], 1, logits=rows, logits_capacity=1, draft_logits=rows)
    with (
        open_engine(checkpoint_of("bf16_like_4_7")) as engine,
        pytest.raises(EngineError, match="no prediction layer"),
    ):
        engine.submit(request)

"""`linear` and `experts` that say that their output is a part of a sum over the ranks.

The sums that `reduce_add_norm_quantise` makes of it have the bits of those without a word about it,
whether the producer stores the parts into the other ranks' memory (a GPU a rank) or not.
"""

import ctypes
from threading import Barrier

import numpy as np
import pytest

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, FP8, NO_SHARED_EXPERT, BackendError, address
from glm_engine.verify.facts import WORKSPACE
from glm_engine.verify.header import constants
from tests import shapes
from tests.devices import num_devices
from tests.native import calls
from tests.native.ranks import on_ranks
from tests.native.test_graphs import capture

DTYPES = {"bf16": BF16, "fp8": FP8}
MOST_ROWS_STREAMED = 16
MOST_ROWS_SENT = WORKSPACE["max_step_tokens"]
MORE_ROWS = MOST_ROWS_SENT + 76
ROWS = (1, 2, 3, 7, 8, MOST_ROWS_STREAMED, MOST_ROWS_STREAMED + 1, 24, 64, 300, MOST_ROWS_SENT)
PER_STEP = 2
NUM_STEPS = 40
WORLD_SIZES = (2, 4, 8)
NUM_EXPERTS, TOP_K = 6, 3
SECONDS_TO_MAKE_INPUTS = 120
INVALID = constants()["GLM_INVALID_ARGUMENT"]
NO_PART = constants()["GLM_NO_PART_OF_SUM"]
PART = constants()["GLM_PART_OF_SUM"]
SCATTERED = constants()["GLM_PART_OF_SCATTERED_SUM"]


@pytest.fixture(autouse=True)
def device_with_graphs(backend):
    if backend.kind == "cpu":
        pytest.skip("the CPU device takes no notice of part_of_sum and has no graphs")


class Producer:
    """Parts of at most MORE_ROWS rows on one rank; `which` of PER_STEP inputs makes them.

    A rank may need many seconds more than another to make its inputs on a busy host, and on the
    device a rank waits 3 s for the others: the threads of all ranks meet in between.
    """

    def __init__(self, device, width, dtype, name, rank):
        self.device, self.width = device, width
        self.rng = shapes.generator(name, rank, width, dtype)
        self.delta = op.activation_output(device, (MORE_ROWS, width))

    def inputs(self, columns, dtype):
        for _ in range(PER_STEP):
            values = self.rng.standard_normal((MORE_ROWS, columns))
            values = op.as_activation(self.device, values)
            given = op.quantise(self.device, values) if dtype == FP8 else values
            yield op.activation(self.device, given)


class LinearProducer(Producer):
    def __init__(self, device, rank, width, columns, dtype):
        super().__init__(device, width, dtype, "linear parts", rank)
        weights = self.rng.standard_normal((width, columns)) / np.sqrt(columns)
        self.matrix, _ = calls.matrix(device, weights, dtype, self.bias())
        self.given = list(self.inputs(columns, dtype))

    def bias(self):
        return self.rng.standard_normal(self.width).astype(np.float32)

    def run(self, count, which, part):
        self.device.run(
            "linear",
            num_tokens=count,
            matrix=self.matrix.pointer,
            input=self.given[which],
            output=self.delta.block,
            part_of_sum=part,
        )


class NotANumberProducer(LinearProducer):
    """Every fifth channel is no number, on every rank."""

    def bias(self):
        bias = super().bias()
        bias[::5] = np.nan
        return bias


class ExpertsProducer(Producer):
    def __init__(self, device, rank, width, columns, dtype):
        super().__init__(device, width, dtype, "experts parts", rank)
        gate_up = self.rng.standard_normal((NUM_EXPERTS, 2 * columns, width)) / np.sqrt(width)
        down = self.rng.standard_normal((NUM_EXPERTS, width, columns)) / np.sqrt(columns)
        self.stack = calls.ExpertStack(device, gate_up, down, dtype)
        self.given = list(self.inputs(width, dtype))
        ids = [self.rng.permutation(NUM_EXPERTS)[:TOP_K] for _ in range(MORE_ROWS)]
        self.ids = device.place(np.array(ids, np.int32))
        weights = self.rng.uniform(0.1, 1, (MORE_ROWS, TOP_K))
        self.weights = device.place(weights.astype(np.float32))

    def run(self, count, which, part):
        self.device.run(
            "experts",
            num_tokens=count,
            top_k=TOP_K,
            expert_begin=0,
            num_local_experts=NUM_EXPERTS,
            shared_expert_id=NO_SHARED_EXPERT,
            input=self.given[which],
            expert_ids=self.ids,
            expert_weights=self.weights,
            output=self.delta.block,
            part_of_sum=part,
            **self.stack.fields(),
        )


class Sums:
    """A producer, and what the sums of its parts are added to."""

    def __init__(self, producer, part):
        self.producer, self.part, self.device = producer, part, producer.device
        self.shape = (MORE_ROWS, producer.width)
        self.residual = self.device.activation(np.zeros(self.shape))
        self.weight = self.device.place(np.ones(producer.width, np.float32))
        made = (
            op.scattered_outputs(self.device, self.shape, MORE_ROWS)
            if part == SCATTERED
            else op.outputs(self.device, self.shape, plain=True, quantised=True)
        )
        self.output, (self.plain, self.codes, self.scale) = made

    def reduce(self, count, delta=None):
        self.device.run(
            "reduce_add_norm_quantise",
            num_tokens=count,
            hidden_size=self.producer.width,
            epsilon=1e-5,
            residual=self.residual,
            delta=self.producer.delta.block if delta is None else delta,
            weight=self.weight,
            output=self.output,
            is_scattered=int(self.part == SCATTERED),
        )

    def step(self, count):
        for which in range(PER_STEP):
            self.producer.run(count, which, self.part)
            self.reduce(count)

    def bits(self):
        residual = self.device.download(self.residual, self.shape, self.device.activation_type)
        arrays = (residual, self.plain.get(), self.codes.get(), self.scale.get())
        return [array.view(np.uint8) for array in arrays]


def course() -> list[tuple[int, bool]]:
    """(number of rows, whether a graph does it) of every step: each number in both ways, mixed."""
    random = shapes.generator("course of sums sent ahead")
    steps = [(count, is_graph) for count in ROWS for is_graph in (False, True)]
    more = [(int(random.choice(ROWS)), bool(random.integers(2))) for _ in range(NUM_STEPS)]
    return steps + more


def run_course(sums: Sums, fewest: int) -> list[np.ndarray]:
    device, numbers = sums.device, [count for count in ROWS if count >= fewest]
    op.meet(device)
    graphs = {count: capture(device, lambda count=count: sums.step(count)) for count in numbers}
    for count, is_graph in course():
        if count < fewest:
            continue
        if is_graph:
            device.check(device.table.graph_replay(device.handle, graphs[count]))
        else:
            sums.step(count)
    op.meet(device)
    bits = sums.bits()
    for graph in graphs.values():
        device.check(device.table.graph_free(device.handle, graph))
    return bits


def of_producers(*producers):
    """A test of these (producer, width, columns), of both types of weights, at every world size."""

    def mark(test):
        for names, values, ids in (
            ("world_size", WORLD_SIZES, None),
            (("producer", "width", "columns"), producers, None),
            ("dtype", DTYPES.values(), DTYPES),
        ):
            test = pytest.mark.parametrize(names, values, ids=ids)(test)
        return test

    return mark


@of_producers(
    (LinearProducer, 5120, 1536),
    (LinearProducer, 4096, 6144),
    (LinearProducer, 8192, 200),
    (LinearProducer, 520, 72),
    (LinearProducer, 524, 72),
    (NotANumberProducer, 520, 72),
    (ExpertsProducer, 5120, 192),
    (ExpertsProducer, 5120, 704),
    (ExpertsProducer, 520, 72),
    (ExpertsProducer, 524, 72),
)
def test_parts_that_are_sent_ahead_give_the_same_bits(
    backend, world_size, producer, width, columns, dtype
):
    inputs_are_made = Barrier(world_size)

    def work(device, rank):
        made = producer(device, rank, width, columns, dtype)
        inputs_are_made.wait(SECONDS_TO_MAKE_INPUTS)
        return [run_course(Sums(made, part), 1) for part in (NO_PART, PART)]

    results = on_ranks(backend, world_size, work)
    for without, ahead in results:
        for expected, actual in zip(without, ahead, strict=True):
            np.testing.assert_array_equal(actual, expected)
        for first, own in zip(results[0][1], ahead, strict=True):
            np.testing.assert_array_equal(own, first)


@of_producers(
    (LinearProducer, 5120, 1536),
    (LinearProducer, 524, 72),
    (NotANumberProducer, 520, 72),
    (ExpertsProducer, 5120, 192),
    (ExpertsProducer, 520, 72),
)
def test_scattered_sums_have_the_same_bits(backend, world_size, producer, width, columns, dtype):
    inputs_are_made = Barrier(world_size)

    def work(device, rank):
        made = producer(device, rank, width, columns, dtype)
        inputs_are_made.wait(SECONDS_TO_MAKE_INPUTS)
        every, share = (run_course(Sums(made, part), world_size) for part in (NO_PART, SCATTERED))
        num_rows = len(range(rank, MOST_ROWS_SENT, world_size))
        residual_and_plain, codes_and_scale = slice(2), slice(2, None)
        for expected, actual in zip(
            every[residual_and_plain], share[residual_and_plain], strict=True
        ):
            own = expected.reshape(MORE_ROWS, -1)[rank:MOST_ROWS_SENT:world_size]
            np.testing.assert_array_equal(actual.reshape(MORE_ROWS, -1)[:num_rows], own)
        for expected, actual in zip(every[codes_and_scale], share[codes_and_scale], strict=True):
            rows = expected.reshape(MORE_ROWS, -1)[:MOST_ROWS_SENT]
            np.testing.assert_array_equal(actual.reshape(MORE_ROWS, -1)[:MOST_ROWS_SENT], rows)

    on_ranks(backend, world_size, work)


@pytest.fixture
def sending(backend):
    """A backend whose producers send: two ranks with a GPU each."""
    if num_devices(backend.kind) < 2:
        pytest.skip("expected 2 GPUs: elsewhere no producer sends")
    return backend


def refused(call) -> str:
    """The message of a call that must be refused."""
    with pytest.raises(BackendError, match="partial sum") as failure:
        call()
    return str(failure.value)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize(
    ("producer", "count"),
    [
        (LinearProducer, 3),
        (LinearProducer, MOST_ROWS_STREAMED),
        (LinearProducer, 300),
        (LinearProducer, MOST_ROWS_SENT),
        (ExpertsProducer, 3),
        (ExpertsProducer, MOST_ROWS_STREAMED + 1),
        (ExpertsProducer, 300),
        (ExpertsProducer, MOST_ROWS_SENT),
    ],
)
def test_a_sum_of_another_part_than_was_sent_is_refused(sending, producer, dtype, count):
    width = 512

    def work(device, rank):
        made = producer(device, rank, width, 64, dtype)
        sums = Sums(made, part=PART)
        other = op.activation_output(device, sums.shape)
        made.run(count, 0, part=PART)
        messages = [
            refused(lambda: sums.reduce(count, other.block)),
            refused(lambda: sums.reduce(count - 1)),
            refused(lambda: sums.reduce(0)),
            refused(lambda: made.run(count, 0, part=PART)),
        ]
        status = device.table.graph_begin(device.handle)
        messages.append(device.message())
        assert status == INVALID
        sums.reduce(count)
        device.synchronise()
        return messages

    for messages in on_ranks(sending, 2, work):
        sent = f"the partial sum already sent, {count} rows of {width} at address"
        assert all(sent in message for message in messages), messages


@pytest.mark.parametrize("count", [MOST_ROWS_STREAMED + 1, MORE_ROWS])
def test_products_of_other_numbers_of_rows_are_not_sent_ahead(sending, count):
    """More rows than streamed products send; more rows than the buffers of the others have."""

    def work(device, rank):
        made = LinearProducer(device, rank, 512, 64, FP8)
        made.run(count, 0, part=PART)
        Sums(made, part=PART).reduce(1)
        device.synchronise()

    on_ranks(sending, 2, work)


def sums_in_a_capture(device, rank) -> Sums:
    """A capture under way that holds a part which no sum takes."""
    sums = Sums(LinearProducer(device, rank, 512, 64, FP8), part=PART)
    device.check(device.table.graph_begin(device.handle))
    sums.step(2)
    sums.producer.run(2, 0, part=PART)
    return sums


def test_a_graph_that_ends_with_a_part_that_was_sent_is_refused(sending):
    def work(device, rank):
        sums = sums_in_a_capture(device, rank)
        graph = ctypes.c_void_p()
        status = device.table.graph_end(device.handle, address(graph))
        message = device.message()
        sums.step(2)
        device.synchronise()
        return status, message

    for status, message in on_ranks(sending, 2, work):
        assert status == INVALID
        assert "a partial sum that is never added" in message


def test_a_capture_that_is_dropped_leaves_nothing_reserved(sending):
    def work(device, rank):
        sums = sums_in_a_capture(device, rank)
        device.check(device.table.graph_end(device.handle, None))
        sums.step(2)
        device.synchronise()

    on_ranks(sending, 2, work)

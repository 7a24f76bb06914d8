"""The operations of a device as Futhark's entry points compute them, numpy arrays in and out."""

from collections.abc import Sequence

import numpy as np

from glm_engine.verify import operations as op
from glm_engine.verify.device import BF16, F32, FP8
from glm_engine.verify.drawing import Controls
from glm_engine.verify.paging import Heads, Norms, Segment
from tests.native import calls
from tests.native.futhark_program import Program

PANEL = 64
NAMES = {F32: "f32", BF16: "bf16", FP8: "fp8"}
NONE = np.zeros(0, np.float32)


def panels(values: np.ndarray) -> np.ndarray:
    """Rows of a weight as the program streams them: [panels][columns * 64 rows]."""
    num_rows, columns = values.shape
    count = -(-num_rows // PANEL)
    padded = np.zeros((count * PANEL, columns), values.dtype)
    padded[:num_rows] = values
    return padded.reshape(count, PANEL, columns).swapaxes(1, 2).reshape(count, -1)


class Stack:
    """Experts one after the other; strides in elements."""

    def __init__(self, values: np.ndarray, dtype: int):
        made = [calls.stored(each, dtype)[:2] for each in values]
        packed = [panels(data).reshape(-1) for data, _ in made]
        self.data, self.stride = np.concatenate(packed), packed[0].size
        self.scale = np.concatenate([scale for _, scale in made]) if dtype == FP8 else NONE
        self.scale_stride = values.shape[1]

    def fields(self, dtype: int) -> tuple:
        scales = (self.scale, self.scale_stride) if dtype == FP8 else ()
        return (self.data, self.stride, *scales)


class Oracle:
    """Results of one program."""

    def __init__(self, program: Program):
        self.program = program

    def quantise(self, values: np.ndarray) -> op.Quantised:
        return op.Quantised(*self.program.call("quantise", values))

    def linear(self, weight, values, dtype: int, bias=NONE) -> np.ndarray:
        data, scale, _ = calls.stored(weight, dtype)
        if dtype == FP8:
            coded = self.quantise(values)
            given = (coded.codes, coded.scale, panels(data), scale, bias)
            return self.program.call("linear_fp8", *given)
        given = (len(weight), values, panels(data), bias)
        return self.program.call(f"linear_{NAMES[dtype]}", *given)

    def logits(self, weight, values, dtype: int, row_index) -> np.ndarray:
        selected = self.program.call("select_rows", row_index, values)
        return self.linear(weight, selected, dtype)

    def embed(self, table, dtype: int, token_ids) -> np.ndarray:
        data, _, _ = calls.stored(table, dtype)
        return self.program.call(f"embed_{NAMES[dtype]}", token_ids, data)

    def add_norm(self, residual, delta, weight, epsilon: float):
        """(new residual, normed rows)."""
        return self.program.call("add_norm", epsilon, weight, residual, delta)

    def swiglu(self, gate_up) -> np.ndarray:
        return self.program.call("swiglu", gate_up.shape[1] // 2, gate_up)

    def route(self, weight, values, bias, top_k: int):
        """(expert ids, weights), normalised."""
        scores = self.linear(weight, values, F32)
        return self.program.call("route", 0, top_k, True, 1.0, bias, scores)

    def experts(self, gate_up, down, dtype: int, values, ids, weights, initial) -> np.ndarray:
        coded = self.quantise(values) if dtype == FP8 else None
        given = (coded.codes, coded.scale) if coded else (values,)
        stacks = (*Stack(gate_up, dtype).fields(dtype), *Stack(down, dtype).fields(dtype))
        head = (0, len(gate_up), down.shape[2])
        return self.program.call(
            f"experts_{NAMES[dtype]}", *head, *given, ids, weights, *stacks, initial
        )

    def rope_tables(self, theta: float, rotary_dim: int, num_positions: int):
        return self.program.call("rope_tables", theta, rotary_dim, num_positions)

    def count_tokens(self, counts, token_ids, reset: bool, from_prompt: bool) -> np.ndarray:
        return self.program.call("count_tokens", reset, from_prompt, token_ids, counts)

    def sample(self, logits, controls: Sequence[Controls], num_logprobs: int):
        """(token ids, is_finite, logprob, best ids, their log-probabilities)."""
        num_rows = len(logits)

        def column(name: str) -> np.ndarray:
            return np.array([getattr(each, name) for each in controls])

        none, zero = np.full(num_rows, -1), np.zeros(num_rows)
        names = ("temperature", "top_p", "min_p", "top_k", "repetition_penalty")
        names += ("frequency_penalty", "presence_penalty", "seed", "position")
        rows = (zero, 0, zero, none, none, np.full(num_rows, num_logprobs), none, zero, zero)
        empty = np.zeros((0, 0))
        given = (*map(column, names), *rows, NONE, NONE, empty, empty)
        return self.program.call("sample", num_logprobs, logits, *given)


class OraclePages:
    """Pages of the program's own order, [page][layer][kv_head][k or v][position * head_dim]."""

    def __init__(self, oracle: Oracle, heads: Heads, num_layers: int, num_pages: int, page_size):
        self.program, self.heads, self.page_size = oracle.program, heads, page_size
        self.shape = (num_pages, num_layers, heads.num_kv_heads, 2, page_size * heads.head_dim)
        self.pages = np.full(self.shape, np.nan, np.float32)

    def slots(self, segment: Segment, positions: np.ndarray) -> np.ndarray:
        pages = np.asarray(segment.page_table)[positions // self.page_size]
        return pages * self.page_size + positions % self.page_size

    def store(self, qkv, positions, slots, norms: Norms, tables, layer: int) -> np.ndarray:
        """norm_rope_store: gives the queries."""
        heads = self.heads
        sizes = (heads.num_heads, heads.num_kv_heads, heads.head_dim)
        place = (self.shape[1], self.page_size, layer, norms.epsilon, norms.query, norms.key)
        given = (*sizes, *place, *tables, positions, slots, qkv, self.pages.reshape(-1))
        query, stored = self.program.call("norm_rope_store", *given)
        self.pages = stored.reshape(self.shape)
        return query

    def attend(self, query, segment: Segment, layer: int) -> np.ndarray:
        heads, table = self.heads, np.array([segment.page_table])
        sizes = (heads.num_heads, self.page_size, heads.head_dim, heads.head_dim**-0.5)
        lengths = ([0, segment.num_new_tokens], [segment.context_length], [0])
        given = (*sizes, self.pages, layer, *lengths, table, query)
        return self.program.call("attention", *given)

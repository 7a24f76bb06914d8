"""A paged cache on a device, filled and read through the operations of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from glm_engine.verify import operations as op
from glm_engine.verify.device import Device, Output, address
from glm_engine.verify.header import structs

Tables = tuple[Output, Output]
"""Cosines and sines of positions."""


@dataclass(frozen=True)
class Heads:
    num_heads: int
    num_kv_heads: int
    head_dim: int

    @property
    def qkv_width(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


@dataclass(frozen=True)
class Norms:
    """Weights of the norm of q and of k, or none."""

    query: np.ndarray | None
    key: np.ndarray | None
    epsilon: float = 1e-5


@dataclass(frozen=True)
class Segment:
    """num_new_tokens rows at the end of context_length positions, in the pages of page_table."""

    context_length: int
    num_new_tokens: int
    page_table: Sequence[int]

    def positions(self) -> np.ndarray:
        return np.arange(self.context_length - self.num_new_tokens, self.context_length)


@dataclass(frozen=True)
class HeadScales:
    """Scales [layers, kv_heads] of cached codes of k and of v; None stands for 1."""

    key: np.ndarray | None = None
    value: np.ndarray | None = None


NO_SCALES = HeadScales()


class PagedCache:
    """Poisoned pages, so that a row that reads what was never written shows."""

    def __init__(
        self,
        device: Device,
        heads: Heads,
        num_layers: int = 1,
        num_pages: int = 8,
        page_size: int = 4,
        dtype: int | None = None,
        scales: HeadScales = NO_SCALES,
    ):
        page_size = device.page_size(page_size)
        self.device, self.heads, self.page_size = device, heads, page_size
        self.struct = structs()["glm_kv_cache"](
            device.info.default_kv_dtype if dtype is None else dtype,
            num_layers,
            num_pages,
            page_size,
            heads.num_kv_heads,
            heads.head_dim,
        )
        self.page_bytes = device.page_bytes(self.struct)
        self.struct.data = device.empty(num_pages * self.page_bytes).value
        if scales.key is not None:
            self.struct.key_scale = device.place(scales.key).value
        if scales.value is not None:
            self.struct.value_scale = device.place(scales.value).value

    @property
    def pointer(self) -> int:
        return address(self.struct)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(pages, layers, bytes of a page of a layer) as the memory holds them."""
        layers = self.struct.num_layers
        sizes = (self.struct.num_pages, layers)
        order = sizes[::-1] if self.device.facts.layers_first else sizes
        return (*order, self.page_bytes // layers)

    def turned(self, stored: np.ndarray) -> np.ndarray:
        return stored.swapaxes(0, 1) if self.device.facts.layers_first else stored

    def contents(self) -> np.ndarray:
        """All bytes as [page][layer][byte]."""
        return self.turned(self.device.download(self.struct.data, self.shape, np.uint8)).copy()

    def fill(self, pages: np.ndarray) -> None:
        """Sets all bytes from [page][layer][byte]."""
        self.device.upload(self.struct.data, self.turned(pages))

    def slots(self, segment: Segment, positions: np.ndarray) -> np.ndarray:
        pages = np.asarray(segment.page_table, np.int32)[positions // self.page_size]
        slots: np.ndarray = pages * self.page_size + positions % self.page_size
        return slots.astype(np.int32)

    def store(
        self,
        qkv: np.ndarray,
        positions: ArrayLike,
        slots: ArrayLike,
        norms: Norms,
        tables: Tables,
        rotary_dim: int,
        layer: int = 0,
    ) -> np.ndarray:
        """norm_rope_store: gives the queries [tokens, num_heads * head_dim]."""
        cosine, sine = tables
        width = self.heads.num_heads * self.heads.head_dim
        query = op.activation_output(self.device, (len(qkv), width))
        weights = [
            None if weight is None else self.device.place(np.asarray(weight, np.float32))
            for weight in (norms.query, norms.key)
        ]
        self.device.run(
            "norm_rope_store",
            num_tokens=len(qkv),
            num_heads=self.heads.num_heads,
            rotary_dim=rotary_dim,
            layer=layer,
            epsilon=norms.epsilon,
            query_norm=weights[0],
            key_norm=weights[1],
            cosine=cosine.block,
            sine=sine.block,
            positions=self.device.place(np.asarray(positions, np.int32)),
            slots=self.device.place(np.asarray(slots, np.int32)),
            qkv=self.device.activation(qkv),
            query=query.block,
            cache=self.pointer,
        )
        return op.activation_values(query)

    def attend(
        self, query: np.ndarray, segments: list[Segment], num_decode: int = 0, layer: int = 0
    ) -> np.ndarray:
        """attention over the segments, whose rows follow each other in `query`."""
        begins = np.cumsum([0, *(each.num_new_tokens for each in segments)]).astype(np.int32)
        stride = max([1, *(len(each.page_table) for each in segments)])
        table = np.zeros((max(1, len(segments)), stride), np.int32)
        table_row = np.arange(len(segments), dtype=np.int32)[::-1].copy()
        for row, segment in zip(table_row, segments, strict=True):
            table[row, : len(segment.page_table)] = segment.page_table
        lengths = np.array([each.context_length for each in segments], np.int32)
        output = op.activation_output(self.device, query.shape)
        self.device.run(
            "attention",
            num_tokens=len(query),
            segments=structs()["glm_segments"](
                len(segments),
                num_decode,
                self.device.place(begins),
                self.device.place(lengths),
                self.device.place(table_row),
                self.device.place(table),
                stride,
                len(table),
                rows_per_sequence=1,
            ),
            num_heads=self.heads.num_heads,
            layer=layer,
            scale=self.heads.head_dim**-0.5,
            query=self.device.activation(query),
            cache=self.pointer,
            output=output.block,
        )
        return op.activation_values(output)

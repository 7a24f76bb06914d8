#pragma once

#include "native/kernels/prefill_attention/tiling.hpp"

namespace glm::kernels::prefill_attention_detail {

struct SegmentTable {
  int32_t num_segments;
  int32_t num_row_tiles;
  int32_t tile_begin[kMaxSegments];
  int32_t query_begin[kMaxSegments];
  int32_t num_tokens[kMaxSegments];
  int32_t context_length[kMaxSegments];
  int32_t table_row[kMaxSegments];
};

struct Unsorted {
  int32_t num_row_tiles[kMaxSegments];
  int32_t context_length[kMaxSegments];
};

struct Item {
  int32_t kv_head;
  int32_t first_row;
  int32_t num_rows;
  int32_t query_begin;
  int32_t tokens_before;
  int32_t context_length;
  int32_t table_row;
  int32_t num_key_tiles;
  int32_t num_open_tiles;
};

__device__ inline bool goes_before(const Unsorted& unsorted, int32_t left,
                                   int32_t right) {
  int32_t difference =
      unsorted.context_length[left] - unsorted.context_length[right];
  return difference > 0 || (difference == 0 && left < right);
}

__device__ inline void place_segment(const Parameters& parameters,
                                     const Unsorted& unsorted, int32_t segment,
                                     SegmentTable& table) {
  int32_t rank = 0;
  int32_t tiles_before = 0;
  for (int32_t other = 0; other < table.num_segments; ++other) {
    if (!goes_before(unsorted, other, segment)) continue;
    ++rank;
    tiles_before += unsorted.num_row_tiles[other];
  }
  const int32_t source = parameters.segment_begin + segment;
  const int32_t begin = parameters.segments.query_begin[source];
  table.tile_begin[rank] = tiles_before;
  table.query_begin[rank] = begin;
  table.num_tokens[rank] = parameters.segments.query_begin[source + 1] - begin;
  table.context_length[rank] = unsorted.context_length[segment];
  table.table_row[rank] = parameters.segments.table_row[source];
  if (rank == table.num_segments - 1)
    table.num_row_tiles = tiles_before + unsorted.num_row_tiles[segment];
}

__device__ inline void build_segment_table(const Parameters& parameters,
                                           Unsorted& unsorted,
                                           SegmentTable& table) {
  const int32_t num_segments =
      parameters.segment_end - parameters.segment_begin;
  if (threadIdx.x == 0) table.num_segments = num_segments;
  for (int32_t i = threadIdx.x; i < num_segments; i += kNumThreads) {
    const int32_t source = parameters.segment_begin + i;
    const int32_t num_tokens = parameters.segments.query_begin[source + 1] -
                               parameters.segments.query_begin[source];
    unsorted.context_length[i] = parameters.segments.context_length[source];
    unsorted.num_row_tiles[i] =
        (num_tokens * parameters.group + kRowTile - 1) / kRowTile;
  }
  __syncthreads();
  for (int32_t i = threadIdx.x; i < num_segments; i += kNumThreads)
    place_segment(parameters, unsorted, i, table);
  __syncthreads();
}

__device__ inline int32_t num_items(const Parameters& parameters,
                                    const SegmentTable& table) {
  return table.num_row_tiles * parameters.cache.num_kv_heads;
}

__device__ inline int32_t item_index(int32_t turn) {
  const int32_t place = turn % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
  return turn * static_cast<int32_t>(gridDim.x) + place;
}

__device__ inline int32_t find_segment(const SegmentTable& table,
                                       int32_t row_tile) {
  int32_t low = 0;
  int32_t high = table.num_segments - 1;
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (table.tile_begin[middle] <= row_tile)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <typename Tile>
__device__ inline Item make_item(const Parameters& parameters,
                                 const SegmentTable& table, int32_t index) {
  const int32_t row_tile = index / parameters.cache.num_kv_heads;
  const int32_t segment = find_segment(table, row_tile);
  const int32_t tiles_end = segment + 1 < table.num_segments
                                ? table.tile_begin[segment + 1]
                                : table.num_row_tiles;
  Item item;
  item.kv_head = index - row_tile * parameters.cache.num_kv_heads;
  item.first_row = (tiles_end - 1 - row_tile) * kRowTile;
  item.num_rows = table.num_tokens[segment] * parameters.group;
  item.query_begin = table.query_begin[segment];
  item.context_length = table.context_length[segment];
  item.tokens_before = item.context_length - table.num_tokens[segment];
  item.table_row = table.table_row[segment];
  const int32_t last_row = min(item.first_row + kRowTile, item.num_rows) - 1;
  const int32_t first = item.tokens_before + item.first_row / parameters.group;
  const int32_t last = item.tokens_before + last_row / parameters.group;
  item.num_key_tiles = last / Tile::kKeys + 1;
  item.num_open_tiles = (first + 1) / Tile::kKeys;
  return item;
}

}

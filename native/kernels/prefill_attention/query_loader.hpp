#pragma once

#include "native/kernels/prefill_attention/shared_memory.hpp"
#include "native/ptx/async_copy.hpp"

namespace glm::kernels::prefill_attention_detail {

__device__ inline int64_t query_offset(const Parameters& parameters,
                                       const Item& item, int32_t row) {
  const int32_t token = row / parameters.group;
  const int32_t head =
      item.kv_head * parameters.group + row - token * parameters.group;
  return (int64_t{item.query_begin + token} * parameters.num_heads + head) *
         parameters.cache.head_dim;
}

__device__ inline uint4 gather_chunk(const uint16_t* source, int32_t count) {
  uint16_t elements[8];
#pragma unroll
  for (int32_t i = 0; i < 8; ++i) elements[i] = i < count ? source[i] : 0;
  return {elements[0] | uint32_t{elements[1]} << 16,
          elements[2] | uint32_t{elements[3]} << 16,
          elements[4] | uint32_t{elements[5]} << 16,
          elements[6] | uint32_t{elements[7]} << 16};
}

template <typename Tile>
__device__ inline uint8_t* query_chunk(uint8_t* tile, int32_t row,
                                       int32_t chunk) {
  return tile + chunk / kHalfChunks * Tile::kQueryHalfBytes +
         swizzle(row, chunk % kHalfChunks * kChunkBytes);
}

template <typename Tile>
__device__ inline void copy_query_tile(const Parameters& parameters,
                                       const Item& item, int32_t thread,
                                       uint8_t* tile) {
  const bool aligned = parameters.cache.head_dim % 8 == 0;
  for (int32_t i = thread; i < Tile::kQueryChunks; i += Tile::kQueryThreads) {
    const int32_t row = i / Tile::kQueryRowChunks;
    const int32_t chunk = i % Tile::kQueryRowChunks;
    const int32_t source_row = min(item.first_row + row, item.num_rows - 1);
    const int32_t count = min(max(parameters.cache.head_dim - chunk * 8, 0), 8);
    const uint16_t* source = static_cast<const uint16_t*>(parameters.query) +
                             query_offset(parameters, item, source_row) +
                             (count > 0 ? chunk * 8 : 0);
    uint8_t* destination = query_chunk<Tile>(tile, row, chunk);
    if (aligned)
      ptx::async_copy(ptx::shared_address(destination), source, count * 2);
    else
      *reinterpret_cast<uint4*>(destination) = gather_chunk(source, count);
  }
}

__device__ inline void finish_query_tile() {
  ptx::wait_for_copies();
  ptx::proxy_fence();
}

template <typename Tile>
__device__ inline void load_queries(const Parameters& parameters,
                                    Control<Tile>& control,
                                    const Buffers<Tile>& buffers,
                                    int32_t thread) {
  Cursor<Tile::kQueryBuffers> queries;
  const int32_t count = num_items(parameters, control.table);
  for (int32_t turn = 0; item_index(turn) < count; ++turn) {
    const Item item =
        make_item<Tile>(parameters, control.table, item_index(turn));
    wait_empty(control.queries, queries);
    copy_query_tile<Tile>(parameters, item, thread,
                          buffers.query(queries.slot));
    finish_query_tile();
    ptx::barrier_arrive(&control.queries.full[queries.slot]);
    queries.advance();
  }
}

}

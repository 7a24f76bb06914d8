#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "native/collectives/peer/send_receive.hpp"
#include "native/kernels/reduce_add_norm_quantise/norm_rows.hpp"
#include "native/kernels/rows/prefetch.hpp"

namespace glm::kernels::norm {

constexpr int32_t kRowsUnderWay = 2;

using collectives::Exchange;
using collectives::Parts;
using rows::Bf16Chunk;
using rows::FloatChunk;

enum class Way { to_all, in_parts, by_owners, scattered };

template <Way way>
constexpr bool kHasOwners = way == Way::by_owners || way == Way::scattered;

template <Way way>
constexpr int32_t kParts = way == Way::in_parts ? rows::kPartsOfFewRows : 1;

template <int32_t world_size, Way way>
__device__ inline int32_t place_of_part(int32_t row) {
  return kHasOwners<way> ? collectives::place_of_part(world_size, row) : row;
}

template <int32_t world_size, Way way>
__device__ inline int32_t kept_row(int32_t row) {
  return way == Way::scattered ? row / world_size : row;
}

template <int32_t world_size, Way way>
__device__ inline int32_t first_row(const Exchange& exchange) {
  const int32_t cluster = rows::cluster_of_block<kParts<way>>();
  return way == Way::scattered ? cluster * world_size + exchange.rank : cluster;
}

template <int32_t world_size, Way way>
__device__ inline int32_t rows_apart() {
  return rows::num_clusters<kParts<way>>() *
         (way == Way::scattered ? world_size : 1);
}

template <Way way>
__device__ inline int32_t chunk_begin(int32_t i) {
  return rows::chunk_begin<kParts<way>>(i);
}

__device__ inline int32_t exchanged_chunk(const Exchange& exchange,
                                          int32_t place, int32_t begin) {
  return place * exchange.row_chunks + begin / rows::kChunkElements;
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__device__ inline void send_row(const NormRows& args, int32_t row) {
  if (kHasOwners<way> && collectives::owns<world_size>(args.exchange, row))
    return;
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    const int32_t begin = chunk_begin<way>(i);
    if (begin >= args.width) continue;
    const Bf16Chunk delta = load_delta<aligned>(args, row, begin);
    const int32_t chunk = exchanged_chunk(
        args.exchange, place_of_part<world_size, way>(row), begin);
    const uint4 words =
        collectives::with_canonical_nans(rows::same_bits<uint4>(delta));
    if constexpr (kHasOwners<way>)
      collectives::send_to_owner<world_size>(args.exchange, row, chunk, words);
    else
      collectives::send<world_size>(args.exchange, chunk, words);
  }
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__device__ inline void send_rows(const NormRows& args, int32_t first,
                                 int32_t count) {
#pragma unroll 1
  for (int32_t row = first; row < args.num_tokens && count > 0;
       row += rows::num_clusters<kParts<way>>(), --count)
    send_row<world_size, way, num_chunks, aligned>(args, row);
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__device__ inline void send_before(const NormRows& args, int32_t row) {
  const int32_t begun = kRowsUnderWay * rows::num_clusters<kParts<way>>();
  const bool is_first = row == rows::cluster_of_block<kParts<way>>();
  send_rows<world_size, way, num_chunks, aligned>(
      args, is_first ? row : row + begun, is_first ? kRowsUnderWay + 1 : 1);
}

template <int32_t world_size, Way way, bool aligned>
__device__ inline void prefetch_next_row(const NormRows& args, int32_t row) {
  const int32_t next = row + rows_apart<world_size, way>();
  if (next >= args.num_tokens) return;
  if constexpr (way == Way::by_owners)
    if (!collectives::owns<world_size>(args.exchange, next)) return;
  rows::prefetch_row<aligned>(args.residual, kept_row<world_size, way>(next),
                              args.width);
  rows::prefetch_row<aligned>(args.delta, next, args.width);
  if constexpr (world_size > 1)
    if (args.exchange.is_sent)
#pragma unroll 1
      for (int32_t i = 0; i < world_size - 1; ++i)
        rows::prefetch_row<aligned>(
            reinterpret_cast<const __nv_bfloat16*>(
                collectives::place_of(args.exchange, i, 0)),
            place_of_part<world_size, way>(next), args.width);
}

template <int32_t world_size>
__device__ inline FloatChunk sum_of(const Exchange& exchange,
                                    const Bf16Chunk& delta,
                                    const Parts<world_size>& parts) {
  const uint4 own =
      collectives::with_canonical_nans(rows::same_bits<uint4>(delta));
  auto of_rank = [&](int32_t rank) {
    return rows::widen(rows::same_bits<Bf16Chunk>(
        collectives::part_of(exchange, rank, own, parts)));
  };
  FloatChunk sum = of_rank(0);
#pragma unroll
  for (int32_t rank = 1; rank < world_size; ++rank) add_to(sum, of_rank(rank));
  return sum;
}

template <int32_t world_size>
__device__ inline Bf16Chunk new_residual(const Exchange& exchange,
                                         const Bf16Chunk& residual,
                                         const Bf16Chunk& delta,
                                         const Parts<world_size>& parts) {
  FloatChunk sum = rows::widen(residual);
  add_to(sum, sum_of(exchange, delta, parts));
  return rows::narrow(sum);
}

template <int32_t world_size>
__device__ inline void send_sum(const Exchange& exchange, int32_t row,
                                int32_t begin, const Bf16Chunk& sum) {
  collectives::send<world_size>(
      exchange,
      exchanged_chunk(exchange, collectives::place_of_sum(world_size, row),
                      begin),
      collectives::with_canonical_nans(rows::same_bits<uint4>(sum)));
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__device__ inline void add_parts(const NormRows& args, int32_t row,
                                 Bf16Chunk (&chunks)[num_chunks]) {
  const int32_t kept = kept_row<world_size, way>(row);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    const int32_t begin = chunk_begin<way>(i);
    chunks[i] = {};
    if (begin >= args.width) continue;
    const int32_t chunk = exchanged_chunk(
        args.exchange, place_of_part<world_size, way>(row), begin);
    auto parts = collectives::look<world_size>(args.exchange, chunk);
    const Bf16Chunk residual = load_residual<aligned>(args, kept, begin);
    const Bf16Chunk delta = load_delta<aligned>(args, row, begin);
    if (i == 0) prefetch_next_row<world_size, way, aligned>(args, row);
    collectives::receive(args.exchange, chunk, parts);
    chunks[i] = new_residual(args.exchange, residual, delta, parts);
    if constexpr (way == Way::by_owners)
      if (!args.exchange.is_summed)
        send_sum<world_size>(args.exchange, row, begin, chunks[i]);
    collectives::clear<world_size>(args.exchange, chunk);
    store_residual<aligned>(args, kept, begin, chunks[i]);
  }
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ inline void take_sum(const NormRows& args, int32_t row,
                                Bf16Chunk (&chunks)[num_chunks]) {
  prefetch_next_row<world_size, Way::by_owners, aligned>(args, row);
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    const int32_t begin = rows::chunk_begin(i);
    chunks[i] = {};
    if (begin >= args.width) continue;
    chunks[i] = rows::same_bits<Bf16Chunk>(collectives::receive_from(
        args.exchange, collectives::owner_of<world_size>(row),
        exchanged_chunk(args.exchange,
                        collectives::place_of_sum(world_size, row), begin)));
    store_residual<aligned>(args, row, begin, chunks[i]);
  }
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ inline void take_residual(const NormRows& args, int32_t row,
                                     Bf16Chunk (&chunks)[num_chunks]) {
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i)
    chunks[i] = load_residual<aligned>(
        args, kept_row<world_size, Way::scattered>(row), rows::chunk_begin(i));
}

template <int32_t world_size, Way way, int32_t num_chunks, bool aligned>
__device__ inline void exchange_row(const NormRows& args, int32_t row,
                                    Bf16Chunk (&chunks)[num_chunks]) {
  if constexpr (way == Way::by_owners)
    if (!collectives::owns<world_size>(args.exchange, row))
      return take_sum<world_size, num_chunks, aligned>(args, row, chunks);
  if constexpr (way == Way::scattered)
    if (args.delta == nullptr)
      return take_residual<world_size, num_chunks, aligned>(args, row, chunks);
  add_parts<world_size, way, num_chunks, aligned>(args, row, chunks);
}

template <int32_t world_size, int32_t num_chunks, bool aligned>
__device__ inline void send_sum_of_row(const NormRows& args, int32_t row) {
#pragma unroll
  for (int32_t i = 0; i < num_chunks; ++i) {
    const int32_t begin = rows::chunk_begin(i);
    if (begin >= args.width) continue;
    const int32_t chunk = exchanged_chunk(
        args.exchange, place_of_part<world_size, Way::by_owners>(row), begin);
    send_sum<world_size>(
        args.exchange, row, begin,
        new_residual(args.exchange, load_residual<aligned>(args, row, begin),
                     load_delta<aligned>(args, row, begin),
                     collectives::look<world_size>(args.exchange, chunk)));
  }
}

}

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "native/collectives/peer/canonical_nans.hpp"
#include "native/collectives/peer/exchange.hpp"
#include "native/collectives/peer/owners.hpp"
#include "native/collectives/peer/wait.hpp"
#include "native/ptx/system_memory.hpp"

namespace glm::collectives {

__device__ inline bool is_complete(const uint4& words) {
  return words.x != kAbsent && words.y != kAbsent && words.z != kAbsent &&
         words.w != kAbsent;
}

template <int32_t world_size>
__device__ inline void send(const Exchange& exchange, int32_t chunk,
                            const uint4& words) {
#pragma unroll
  for (int32_t step = 1; step < world_size; ++step) {
    const int32_t peer = (exchange.rank + step) % world_size;
    ptx::store_to_system(exchange.sent[peer] + chunk, words);
  }
}

template <int32_t world_size>
__device__ inline int32_t owner_of(int32_t row) {
  return row % world_size;
}

template <int32_t world_size>
__device__ inline bool owns(const Exchange& exchange, int32_t row) {
  return owner_of<world_size>(row) == exchange.rank;
}

template <int32_t world_size>
__device__ inline void send_to_owner(const Exchange& exchange, int32_t row,
                                     int32_t chunk, const uint4& words) {
  const int32_t owner = owner_of<world_size>(row);
  ptx::store_to_system(exchange.sent[owner] + chunk, words);
}

template <int32_t world_size>
struct Parts {
  uint4 of[world_size - 1];
};

__device__ inline uint4* place_of(const Exchange& exchange, int32_t i,
                                  int32_t chunk) {
  return exchange.received + (chunk + i * exchange.chunks_apart);
}

template <int32_t world_size>
__device__ inline Parts<world_size> look(const Exchange& exchange,
                                         int32_t chunk) {
  Parts<world_size> parts;
#pragma unroll
  for (int32_t i = 0; i < world_size - 1; ++i)
    parts.of[i] = ptx::load_from_system(place_of(exchange, i, chunk));
  return parts;
}

template <int32_t world_size>
__device__ inline bool are_complete(const Parts<world_size>& parts) {
  bool all = true;
#pragma unroll
  for (int32_t i = 0; i < world_size - 1; ++i)
    all = all && is_complete(parts.of[i]);
  return all;
}

template <int32_t world_size>
__device__ inline uint32_t first_absent(const Exchange& exchange,
                                        const Parts<world_size>& parts) {
  int32_t first = 0;
#pragma unroll
  for (int32_t i = world_size - 2; i >= 0; --i)
    if (!is_complete(parts.of[i])) first = i;
  return static_cast<uint32_t>(first < exchange.rank ? first : first + 1);
}

template <int32_t world_size>
__device__ inline void wait_for_parts(const Exchange& exchange, int32_t chunk,
                                      Parts<world_size>& parts) {
  wait_until(
      exchange.stop, [&] { return first_absent(exchange, parts); },
      [&] {
        if (world_size > 4) asm volatile("" : "+r"(chunk));
#pragma unroll
        for (int32_t i = 0; i < world_size - 1; ++i)
          if (!is_complete(parts.of[i]))
            parts.of[i] = ptx::load_from_system(place_of(exchange, i, chunk));
        return are_complete(parts);
      });
}

template <int32_t world_size>
__device__ inline void receive(const Exchange& exchange, int32_t chunk,
                               Parts<world_size>& parts) {
  if (!are_complete(parts)) wait_for_parts(exchange, chunk, parts);
}

template <int32_t world_size>
__device__ inline void clear(const Exchange& exchange, int32_t chunk) {
#pragma unroll
  for (int32_t i = 0; i < world_size - 1; ++i)
    *place_of(exchange, i, chunk) =
        make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
}

__device__ inline Stop after_owners(Stop stop) {
  stop.limit_ns += stop.limit_ns / 8;
  return stop;
}

__device__ inline uint4 receive_from(const Exchange& exchange, int32_t peer,
                                     int32_t chunk) {
  uint4* place =
      place_of(exchange, peer < exchange.rank ? peer : peer - 1, chunk);
  uint4 words = ptx::load_from_system(place);
  if (!is_complete(words))
    wait_until(
        after_owners(exchange.stop),
        [&] { return static_cast<uint32_t>(peer); },
        [&] {
          words = ptx::load_from_system(place);
          return is_complete(words);
        });
  *place = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
  return words;
}

template <int32_t world_size>
__device__ inline uint4 part_of(const Exchange& exchange, int32_t rank,
                                const uint4& own,
                                const Parts<world_size>& parts) {
  if (rank == exchange.rank) return own;
  if (rank == 0) return parts.of[0];
  if (rank == world_size - 1) return parts.of[world_size - 2];
  return rank < exchange.rank ? parts.of[rank] : parts.of[rank - 1];
}

}

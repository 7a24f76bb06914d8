#ifndef GLM_COLLECTIVES_PEER_SEND_RECEIVE_HPP
#define GLM_COLLECTIVES_PEER_SEND_RECEIVE_HPP

#include <cuda_runtime.h>

#include <cstdint>

#include "native/collectives/peer/canonical_nans.hpp"
#include "native/collectives/peer/exchange.hpp"
#include "native/collectives/peer/wait.hpp"
#include "native/ptx/system_memory.hpp"

namespace glm::collectives {

__device__ inline bool is_complete(const uint4& words) {
  return words.x != kAbsent && words.y != kAbsent && words.z != kAbsent &&
         words.w != kAbsent;
}

template <int32_t world_size>
__device__ inline void send(const Exchange& exchange, int64_t chunk,
                            const uint4& words) {
#pragma unroll
  for (int32_t step = 1; step < world_size; ++step) {
    const int32_t peer = (exchange.rank + step) % world_size;
    ptx::store_to_system(exchange.sent[peer] + chunk, words);
  }
}

__device__ __noinline__ inline uint4 wait_for_chunk(const Stop& stop,
                                                    uint32_t peer,
                                                    const uint4* place) {
  uint4 words;
  wait_until(stop, peer, [&] {
    words = ptx::load_from_system(place);
    return is_complete(words);
  });
  return words;
}

__device__ inline uint4 receive(const Exchange& exchange, int32_t peer,
                                int64_t chunk) {
  uint4* place = exchange.received[peer] + chunk;
  uint4 words = ptx::load_from_system(place);
  if (!is_complete(words))
    words = wait_for_chunk(exchange.stop, static_cast<uint32_t>(peer), place);
  *place = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
  return words;
}

}

#endif

#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "native/collectives/peer/canonical_nans.hpp"
#include "native/collectives/peer/owners.hpp"
#include "native/collectives/peer/peer_rows.hpp"
#include "native/ptx/system_memory.hpp"

namespace glm::collectives {

constexpr int64_t kElementBytes = 2;

template <typename Words>
__device__ inline void send_ahead(const PeerRows& peers, int32_t row,
                                  int64_t element, const Words& pairs) {
  if (peers.count == 0) return;
  const Words words = with_canonical_nans(pairs);
  int32_t begin = 0;
  int32_t end = peers.count;
  if (peers.num_owners > 0) {
    begin = (row + peers.first_owner) % peers.num_owners;
    end = min(begin + 1, peers.count);
    element +=
        int64_t{place_of_part(peers.num_owners, row) - row} * peers.width;
  }
#pragma unroll 1
  for (int32_t i = begin; i < end; ++i)
    ptx::store_to_system(static_cast<Words*>(peers.of[i]) +
                             element / (sizeof(Words) / kElementBytes),
                         words);
}

}

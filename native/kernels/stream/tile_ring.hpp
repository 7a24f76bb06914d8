#ifndef GLM_KERNELS_STREAM_TILE_RING_HPP
#define GLM_KERNELS_STREAM_TILE_RING_HPP

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"

namespace glm::kernels::stream {

struct RingBarriers {
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
};

struct TileRing {
  uint8_t* stages;
  RingBarriers* barriers;
  int32_t num_stages;
  int32_t stage_bytes;
};

struct RingCursor {
  int32_t stage = 0;
  uint32_t parity = 0;

  __device__ void advance(const TileRing& ring) { advance(ring.num_stages); }

  __device__ void advance(int32_t num_stages) {
    if (++stage == num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}

#endif

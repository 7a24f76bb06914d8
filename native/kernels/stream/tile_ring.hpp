#ifndef GLM_KERNELS_STREAM_TILE_RING_HPP
#define GLM_KERNELS_STREAM_TILE_RING_HPP

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/mbarrier.hpp"

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

__device__ inline void init_ring(const TileRing& ring, uint32_t num_consumers) {
  for (int32_t stage = 0; stage < ring.num_stages; ++stage) {
    ptx::barrier_init(&ring.barriers->full[stage], 1);
    ptx::barrier_init(&ring.barriers->empty[stage], num_consumers);
  }
  ptx::barrier_init_fence();
}

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

__device__ inline void push_tile(const TileRing& ring, RingCursor& cursor,
                                 const uint8_t* source) {
  uint64_t* full = &ring.barriers->full[cursor.stage];
  ptx::barrier_wait(&ring.barriers->empty[cursor.stage], cursor.parity ^ 1);
  ptx::barrier_expect(full, ring.stage_bytes);
  ptx::bulk_copy(ring.stages + cursor.stage * ring.stage_bytes, source,
                 ring.stage_bytes, full, ptx::kEvictFirst);
  cursor.advance(ring);
}

__device__ inline const uint8_t* await_tile(const TileRing& ring,
                                            const RingCursor& cursor) {
  ptx::barrier_wait(&ring.barriers->full[cursor.stage], cursor.parity);
  return ring.stages + cursor.stage * ring.stage_bytes;
}

__device__ inline void pop_tile(const TileRing& ring, RingCursor& cursor,
                                bool is_elected) {
  if (is_elected) ptx::barrier_arrive(&ring.barriers->empty[cursor.stage]);
  cursor.advance(ring);
}

}

#endif

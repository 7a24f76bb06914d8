#pragma once

#include "native/kernels/prefill_attention/schedule.hpp"
#include "native/ptx/mbarrier.hpp"

namespace glm::kernels::prefill_attention_detail {

template <int32_t slots>
struct Ring {
  uint64_t full[slots];
  uint64_t empty[slots];
};

template <int32_t slots>
struct Cursor {
  int32_t slot = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    slot = slot + 1 == slots ? 0 : slot + 1;
    parity ^= slot == 0;
  }
};

template <typename Tile>
struct Control {
  Ring<Tile::kStages> keys;
  Ring<Tile::kStages> values;
  Ring<Tile::kQueryBuffers> queries;
  SegmentTable table;
  Unsorted unsorted;
};

template <typename Tile>
struct Buffers {
  uint8_t* base;
  __device__ uint8_t* query(int32_t slot) const {
    return base + slot * Tile::kQueryBytes;
  }
  __device__ uint8_t* key(int32_t slot) const {
    return base + Tile::kQueryBuffers * Tile::kQueryBytes +
           slot * Tile::kTileBytes;
  }
  __device__ uint8_t* value(int32_t slot) const {
    return key(Tile::kStages + slot);
  }
  __device__ uint8_t* behind_tiles() const { return value(Tile::kStages); }
};

template <int32_t slots>
__device__ inline void init_ring(Ring<slots>& ring, uint32_t producers) {
  for (int32_t i = 0; i < slots; ++i) {
    ptx::barrier_init(&ring.full[i], producers);
    ptx::barrier_init(&ring.empty[i], kNumConsumerWarps);
  }
}

template <int32_t slots>
__device__ inline void wait_full(Ring<slots>& ring,
                                 const Cursor<slots>& cursor) {
  ptx::barrier_wait(&ring.full[cursor.slot], cursor.parity);
}

template <int32_t slots>
__device__ inline void wait_empty(Ring<slots>& ring,
                                  const Cursor<slots>& cursor) {
  ptx::barrier_wait(&ring.empty[cursor.slot], cursor.parity ^ 1);
}

template <int32_t slots>
__device__ inline void release(Ring<slots>& ring, Cursor<slots>& cursor) {
  if (threadIdx.x % kWarpThreads == 0)
    ptx::barrier_arrive(&ring.empty[cursor.slot]);
  cursor.advance();
}

template <typename Tile>
__device__ inline Buffers<Tile> align_buffers(uint8_t* memory) {
  const uint32_t address = ptx::shared_address(memory);
  const uint32_t padding = (0u - address) & (Tile::kSwizzlePeriod - 1);
  return {memory + padding};
}

}

#pragma once

#include <cstdint>

#include "native/kernels/products/ring_cursor.hpp"
#include "native/kernels/route/parameters.hpp"
#include "native/kernels/route/token_rows.hpp"
#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/warp_arrival.hpp"

namespace glm::kernels::routing {

struct Barriers {
  uint64_t full[kMaxStages];
  uint64_t empty[kMaxStages];
  uint64_t received;
};

__device__ inline void init_barriers(const RouteParameters& p,
                                     const SharedPlan& plan,
                                     int32_t expected_bytes,
                                     Barriers& barriers) {
  for (int32_t stage = 0; stage < p.num_stages; ++stage) {
    ptx::barrier_init(&barriers.full[stage], 1);
    ptx::barrier_init(&barriers.empty[stage],
                      plan.own_fragments * ptx::kWarpArrivals);
  }
  ptx::barrier_init(&barriers.received, 1);
  ptx::barrier_init_fence();
  ptx::proxy_fence();
  ptx::barrier_expect(&barriers.received, expected_bytes);
}

__device__ inline void push_slab(const RouteParameters& p, const Slice& slice,
                                 const SharedPlan& plan, uint8_t* slab,
                                 int32_t column, uint64_t* full) {
  ptx::barrier_expect(full, plan.slab_bytes);
  int32_t begin = slice.first_row * kTileRowBytes;
  int32_t end = begin + plan.slab_bytes;
  while (begin < end) {
    int32_t within = begin % kTileBytes;
    int32_t bytes = min(kTileBytes - within, end - begin);
    int64_t tile = int64_t{begin / kTileBytes} * p.num_column_tiles + column;
    ptx::bulk_copy(slab, p.router + tile * kTileBytes + within, bytes, full);
    slab += bytes;
    begin += bytes;
  }
}

__device__ inline void fill_ring(const RouteParameters& p, const Slice& slice,
                                 const SharedPlan& plan, uint8_t* slabs,
                                 Barriers& barriers) {
  int32_t count = min(slice.count(), p.num_stages);
  for (int32_t stage = 0; stage < count; ++stage)
    push_slab(p, slice, plan, slabs + stage * plan.slab_bytes,
              slice.begin + stage, &barriers.full[stage]);
}

__device__ inline void refill_ring(const RouteParameters& p, const Slice& slice,
                                   const SharedPlan& plan, uint8_t* slabs,
                                   Barriers& barriers) {
  products::RingCursor place;
  for (int32_t column = slice.begin + p.num_stages; column < slice.end;
       ++column) {
    ptx::barrier_wait(&barriers.empty[place.stage], place.parity);
    push_slab(p, slice, plan, slabs + place.stage * plan.slab_bytes, column,
              &barriers.full[place.stage]);
    place.advance(p.num_stages);
  }
}

__device__ inline void release_stage(const RouteParameters& p,
                                     const Slice& slice, Barriers& barriers,
                                     int32_t stage) {
  if (slice.count() > p.num_stages) ptx::warp_arrive(&barriers.empty[stage]);
}

}

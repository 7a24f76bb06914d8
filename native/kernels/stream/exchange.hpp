#ifndef GLM_KERNELS_STREAM_EXCHANGE_HPP
#define GLM_KERNELS_STREAM_EXCHANGE_HPP

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/mbarrier.hpp"

namespace glm::kernels::stream {

struct ExchangeBarriers {
  uint64_t ready[kMaxSlots];
  uint64_t drained[kMaxSlots];
};

struct SlotCursor {
  int32_t slot = 0;
  uint32_t parity = 0;
  bool is_reused = false;

  __device__ void advance(int32_t num_slots) {
    if (++slot == num_slots) {
      slot = 0;
      parity ^= 1;
      is_reused = true;
    }
  }
};

__device__ inline int32_t divide_by_split(const ProductShape& shape,
                                          int32_t value) {
  return value * shape.split_reciprocal >> 16;
}

template <int32_t columns>
class Exchange {
 public:
  __device__ Exchange(const ProductShape& shape, uint32_t shared,
                      ExchangeBarriers* barriers, int32_t rank)
      : shape_(shape),
        cells_(shared + shape.exchange_offset),
        ready_(ptx::shared_address(barriers->ready)),
        drained_(ptx::shared_address(barriers->drained)),
        rank_(rank),
        num_warps_(shape.num_warpgroups * kWarpgroupWarps) {}

  __device__ void init() const {
    for (int32_t slot = 0; slot < shape_.num_slots; ++slot) {
      ptx::barrier_init(ready_ + slot * kBarrierBytes,
                        is_alone() ? 1 + num_warps_ : 1);
      ptx::barrier_init(drained_ + slot * kBarrierBytes,
                        shape_.split * kCombinerWarps);
    }
  }

  __device__ bool is_alone() const { return shape_.split == 1; }

  __device__ void send(const float* total, const SlotCursor& slot,
                       int32_t warp) const {
    if (slot.is_reused) {
      ptx::barrier_wait(drained_ + slot.slot * kBarrierBytes, slot.parity ^ 1);
    }
    int32_t piece = divide_by_split(shape_, warp);
    int32_t peer = warp - piece * shape_.split;
    int32_t piece_step = divide_by_split(shape_, num_warps_);
    int32_t peer_step = num_warps_ - piece_step * shape_.split;
    uint32_t ready = ready_ + slot.slot * kBarrierBytes;
    uint32_t own = cells_ + slot.slot * shape_.slot_bytes +
                   rank_ * shape_.peer_bytes + lane() * sizeof(float4);
#pragma unroll
    for (int32_t group = 0; group < columns / kGroupTokens; ++group) {
      const float* values = total + group * 4;
      give(own + piece * kPieceBytes, peer, ready,
           make_float4(values[0], values[1], values[2], values[3]));
      piece += piece_step;
      peer += peer_step;
      if (peer >= shape_.split) {
        peer -= shape_.split;
        ++piece;
      }
    }
    if (!is_alone()) return;
    __syncwarp();
    if (lane() == 0) ptx::barrier_arrive(ready);
  }

  __device__ int32_t num_received() const {
    int32_t pieces = columns / kGroupTokens * num_warps_;
    return divide_by_split(shape_, pieces - rank_ + shape_.split - 1);
  }

  __device__ void expect(const SlotCursor& slot) const {
    ptx::barrier_expect(
        ready_ + slot.slot * kBarrierBytes,
        is_alone() ? 0 : shape_.split * num_received() * kPieceBytes);
  }

  __device__ void await(const SlotCursor& slot) const {
    ptx::barrier_wait(ready_ + slot.slot * kBarrierBytes, slot.parity);
  }

  __device__ float4 add_parts(const SlotCursor& slot, int32_t piece) const {
    uint32_t cell = cells_ + slot.slot * shape_.slot_bytes +
                    piece * kPieceBytes + lane() * sizeof(float4);
    float4 parts[kMaxSplit];
#pragma unroll
    for (int32_t source = 0; source < kMaxSplit; ++source) {
      parts[source] = source < shape_.split
                          ? load(cell + source * shape_.peer_bytes)
                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    float4 sum = parts[0];
#pragma unroll
    for (int32_t source = 1; source < kMaxSplit; ++source) {
      sum.x += parts[source].x;
      sum.y += parts[source].y;
      sum.z += parts[source].z;
      sum.w += parts[source].w;
    }
    return sum;
  }

  __device__ int32_t index_of(int32_t piece) const {
    return rank_ + piece * shape_.split;
  }

  __device__ void drain(const SlotCursor& slot) const {
    __syncwarp();
    if (lane() < shape_.split) {
      ptx::release_peer(
          ptx::peer_address(drained_ + slot.slot * kBarrierBytes, lane()));
    }
  }

 private:
  static constexpr uint32_t kBarrierBytes = sizeof(uint64_t);

  __device__ static int32_t lane() {
    return static_cast<int32_t>(threadIdx.x) % kWarpThreads;
  }

  __device__ static float4 load(uint32_t address) {
    float4 values;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(values.x), "=f"(values.y), "=f"(values.z),
                   "=f"(values.w)
                 : "r"(address));
    return values;
  }

  __device__ void give(uint32_t cell, int32_t peer, uint32_t ready,
                       float4 values) const {
    if (is_alone()) {
      asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(cell),
                   "f"(values.x), "f"(values.y), "f"(values.z), "f"(values.w)
                   : "memory");
    } else {
      ptx::store_to_peer(ptx::peer_address(cell, peer), values,
                         ptx::peer_address(ready, peer));
    }
  }

  const ProductShape& shape_;
  uint32_t cells_;
  uint32_t ready_;
  uint32_t drained_;
  int32_t rank_;
  int32_t num_warps_;
};

}

#endif

#pragma once

#include <cstdint>

#include "native/kernels/stream/product_args.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/peer_store.hpp"

namespace glm::kernels::stream {

struct PartBarriers {
  uint64_t ready[kPartWarps];
  uint64_t drained[kPartWarps];
  uint64_t idle;
};

struct OwnerTurn {
  int32_t owner;
  int32_t piece;
  int32_t place;

  __device__ void advance(int32_t split) {
    if (++owner == split) owner = 0;
    if (++place < split) return;
    place = 0;
    ++piece;
  }
};

template <int32_t groups>
class PartExchange {
 public:
  __device__ PartExchange(const ProductShape& shape, uint32_t shared,
                          PartBarriers* barriers, int32_t part, int32_t warp,
                          int32_t lane)
      : split_(shape.split),
        reciprocal_(shape.split_reciprocal),
        num_cells_(keeps_own(shape) ? shape.split : shape.split - 1),
        part_(part),
        warp_(warp),
        lane_(lane),
        ready_(ptx::shared_address(barriers->ready + warp)),
        drained_(ptx::shared_address(barriers->drained + warp)),
        idle_(ptx::shared_address(&barriers->idle)),
        cells_(shared + shape.exchange_offset +
               warp * num_cells_ * kPieceBytes +
               lane * static_cast<int32_t>(sizeof(float4))) {}

  __device__ void init() const {
    ptx::barrier_init(ready_, 1);
    if (has_other_owners()) ptx::barrier_init(drained_, num_other_owners());
    if (warp_ == 0) {
      ptx::barrier_init(idle_, split_ * kPartWarps);
    }
  }

  static constexpr int32_t kBatch = 4;

  __device__ static bool keeps_own(const ProductShape& shape) {
    return groups > kMostEagerGroups && shape.keeps_own;
  }

  __device__ int32_t num_owned() const {
    return divide_by_split(groups - first_owned() + split_ - 1);
  }

  __device__ int32_t owned_group(int32_t piece) const {
    return first_owned() + piece * split_;
  }

  __device__ void add_batch(float4 (&sums)[kBatch], int32_t first) const {
    int32_t last = num_owned() - 1;
#pragma unroll 1
    for (int32_t source = 0; source < split_; ++source) {
      float4 values[kBatch];
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        values[i] = load(cell(min(first + i, last), source));
      }
#pragma unroll
      for (int32_t i = 0; i < kBatch; ++i) {
        if (source == 0) {
          sums[i] = values[i];
        } else {
          add(sums[i], values[i]);
        }
      }
    }
  }

  __device__ OwnerTurn first_turn() const {
    OwnerTurn turn = {first_owner(), 0, 0};
    asm volatile("" : "+r"(turn.owner), "+r"(turn.piece), "+r"(turn.place));
    return turn;
  }

  __device__ bool owns(const OwnerTurn& turn) const {
    return turn.owner == part_;
  }

  __device__ void send(const float* total, int32_t round) const {
    if (round > 0 && has_other_owners()) {
      ptx::barrier_wait(drained_, (round - 1) & 1);
    }
    if (lane_ == 0) {
      ptx::barrier_expect(ready_, num_owned() * (split_ - 1) * kPieceBytes);
    }
    OwnerTurn turn = first_turn();
#pragma unroll
    for (int32_t group = 0; group < groups; ++group) {
      const float* values = total + group * 4;
      if (!owns(turn)) {
        bool is_moved = part_ > turn.owner && num_cells_ < split_;
        int32_t source = is_moved ? part_ - 1 : part_;
        ptx::store_to_peer(
            ptx::peer_address(cell(turn.piece, source), turn.owner),
            make_float4(values[0], values[1], values[2], values[3]),
            ptx::peer_address(ready_, turn.owner));
      } else if (num_cells_ == split_) {
        keep(cell(turn.piece, part_), values);
      }
      turn.advance(split_);
    }
  }

  __device__ void await(int32_t round) const {
    ptx::barrier_wait(ready_, round & 1);
  }

  __device__ float4 add_parts(const OwnerTurn& turn, float4 own) const {
    constexpr int32_t kLoads = groups <= kMostEagerGroups ? kMaxSplit : 1;
    float4 sum = {};
#pragma unroll 1
    for (int32_t first = 0; first < split_; first += kLoads) {
      float4 values[kLoads];
#pragma unroll
      for (int32_t i = 0; i < kLoads; ++i) {
        float4 sent = load(cell(turn.piece, cell_of(first + i)));
        values[i] = first + i == part_ ? own : sent;
      }
#pragma unroll
      for (int32_t i = 0; i < kLoads; ++i) {
        if (first + i == 0) {
          sum = values[i];
        } else if (first + i < split_) {
          add(sum, values[i]);
        }
      }
    }
    return sum;
  }

  __device__ void await_idle_stages() const {
    signal(idle_, lane_ < split_);
    ptx::barrier_wait(idle_, 0);
  }

  __device__ void drain() const {
    if (num_owned() > 0) signal(drained_, lane_ < split_ && lane_ != part_);
  }

 private:
  __device__ static void keep(uint32_t address, const float* values) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3])
                 : "memory");
  }

  __device__ int32_t cell_of(int32_t source) const {
    int32_t sent = source < part_ ? source : max(source - 1, 0);
    return min(sent, split_ - 2);
  }

  __device__ static void add(float4& sum, const float4& value) {
    sum.x += value.x;
    sum.y += value.y;
    sum.z += value.z;
    sum.w += value.w;
  }

  __device__ void signal(uint32_t barrier, bool is_for_part_of_lane) const {
    __syncwarp();
    if (is_for_part_of_lane) {
      ptx::release_peer(ptx::peer_address(barrier, lane_));
    }
  }

  __device__ int32_t divide_by_split(int32_t value) const {
    return value * reciprocal_ >> kReciprocalBits;
  }

  __device__ int32_t first_owner() const {
    return warp_ - divide_by_split(warp_) * split_;
  }

  __device__ int32_t first_owned() const {
    int32_t first = part_ - first_owner();
    return first < 0 ? first + split_ : first;
  }

  __device__ int32_t num_other_owners() const {
    return min(groups, split_) - (num_owned() > 0);
  }

  __device__ bool has_other_owners() const { return num_other_owners() > 0; }

  __device__ uint32_t cell(int32_t piece, int32_t source) const {
    return cells_ + (piece * kPartWarps * num_cells_ + source) * kPieceBytes;
  }

  __device__ static float4 load(uint32_t address) {
    float4 values;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(values.x), "=f"(values.y), "=f"(values.z),
                   "=f"(values.w)
                 : "r"(address));
    return values;
  }

  int32_t split_;
  int32_t reciprocal_;
  int32_t num_cells_;
  int32_t part_;
  int32_t warp_;
  int32_t lane_;
  uint32_t ready_;
  uint32_t drained_;
  uint32_t idle_;
  uint32_t cells_;
};

}

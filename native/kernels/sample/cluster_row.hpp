#ifndef GLM_KERNELS_SAMPLE_CLUSTER_ROW_HPP
#define GLM_KERNELS_SAMPLE_CLUSTER_ROW_HPP

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/sample/candidate.hpp"
#include "native/kernels/sample/controls.hpp"
#include "native/ptx/cluster.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kRowBlocks = 8;
constexpr int32_t kThreads = 512;
constexpr int32_t kWarps = kThreads / kWarpThreads;
constexpr int32_t kQuad = 4;
constexpr int32_t kNumBins = 2 * kThreads;

struct SelectedBin {
  uint32_t bin;
  uint64_t before;
  uint64_t weight;
};

struct RowShared {
  alignas(16) uint64_t bins[2][kNumBins];
  Candidate peers[2][kRowBlocks];
  Candidate warps[kWarps];
  uint64_t sums[kWarps];
  uint64_t best[GLM_MAX_LOGPROBS];
  SelectedBin selected;
  alignas(16) float values[kQuad];
};

struct Slice {
  float* values;
  int32_t begin;
  int32_t count;
};

__host__ __device__ constexpr int64_t slice_tokens(int64_t vocab_size) {
  return round_up(ceil_divide(vocab_size, kRowBlocks), kQuad);
}

__host__ __device__ constexpr int64_t shared_bytes(int64_t vocab_size) {
  return sizeof(RowShared) + slice_tokens(vocab_size) * sizeof(float);
}

__device__ inline void cluster_barrier() {
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

template <typename Value>
__device__ Value* at_peer(Value* own, uint32_t rank) {
  uint64_t address;
  asm volatile("mapa.u64 %0, %1, %2;"
               : "=l"(address)
               : "l"(reinterpret_cast<uint64_t>(own)), "r"(rank));
  return reinterpret_cast<Value*>(address);
}

class ClusterRow {
 public:
  __device__ ClusterRow(RowShared& shared, int32_t vocab_size)
      : shared_(shared),
        rank_(ptx::cluster_rank()),
        slice_size_(static_cast<int32_t>(slice_tokens(vocab_size))) {
    int32_t begin = static_cast<int32_t>(rank_) * slice_size_;
    slice_ = {shared.values, begin,
              max(min(vocab_size - begin, slice_size_), 0)};
  }

  __device__ const Slice& slice() const { return slice_; }
  __device__ RowShared& shared() { return shared_; }
  __device__ uint32_t rank() const { return rank_; }
  __device__ bool is_leader() const {
    return rank_ == 0 && threadIdx.x < kWarpThreads;
  }

  __device__ Candidate best_of(Candidate own) {
    own = warp_best(own);
    Candidate none = {0, 0};
    if (lane() == 0) shared_.warps[warp()] = own;
    __syncthreads();
    own = warp_best(lane() < kWarps ? shared_.warps[lane()] : none);
    exchange(own);
    return warp_best(lane() < kRowBlocks ? received()[lane()] : none);
  }

  __device__ uint64_t sum_of(uint64_t own) {
    own = warp_sum(own);
    if (lane() == 0) shared_.sums[warp()] = own;
    __syncthreads();
    own = warp_sum(lane() < kWarps ? shared_.sums[lane()] : 0);
    exchange({own, 0});
    return warp_sum(lane() < kRowBlocks ? received()[lane()].score : 0);
  }

  __device__ uint64_t largest_in_block(uint64_t own) {
    own = warp_largest(own);
    if (lane() == 0) shared_.sums[warp()] = own;
    __syncthreads();
    own = warp_largest(lane() < kWarps ? shared_.sums[lane()] : 0);
    __syncthreads();
    return own;
  }

  __device__ uint64_t* next_bins() {
    bins_parity_ ^= 1;
    return shared_.bins[bins_parity_];
  }

  __device__ float value_at(int32_t token) {
    int32_t owner = token / slice_size_;
    return at_peer(shared_.values, owner)[token - owner * slice_size_];
  }

  __device__ static int32_t lane() { return threadIdx.x % kWarpThreads; }
  __device__ static int32_t warp() { return threadIdx.x / kWarpThreads; }

 private:
  __device__ void exchange(const Candidate& own) {
    parity_ ^= 1;
    if (threadIdx.x < kRowBlocks)
      at_peer(shared_.peers[parity_], threadIdx.x)[rank_] = own;
    cluster_barrier();
  }

  __device__ const Candidate* received() const {
    return shared_.peers[parity_];
  }

  RowShared& shared_;
  Slice slice_;
  uint32_t rank_;
  int32_t slice_size_;
  int32_t parity_ = 0;
  int32_t bins_parity_ = 0;
};

template <typename Visit>
__device__ void for_each_quad(const Slice& slice, Visit visit) {
  for (int32_t at = threadIdx.x * kQuad; at < slice.count;
       at += kThreads * kQuad)
    visit(at, *reinterpret_cast<const float4*>(slice.values + at));
}

template <typename Visit>
__device__ void for_each_token(const Slice& slice, Visit visit) {
  for_each_quad(slice, [&](int32_t at, const float4& quad) {
    visit(slice.begin + at, quad.x);
    if (at + 1 < slice.count) visit(slice.begin + at + 1, quad.y);
    if (at + 2 < slice.count) visit(slice.begin + at + 2, quad.z);
    if (at + 3 < slice.count) visit(slice.begin + at + 3, quad.w);
  });
}

}

#endif

#pragma once

#include <cstdint>

#include "native/kernels/layout.hpp"
#include "native/kernels/sample/candidate.hpp"
#include "native/kernels/sample/controls.hpp"
#include "native/kernels/sample/limits.hpp"
#include "native/ptx/cluster.hpp"

namespace glm::kernels::sampling {

constexpr int32_t kThreads = 512;
constexpr int32_t kWarps = kThreads / kWarpThreads;
constexpr int32_t kQuad = 4;

struct Part {
  int32_t begin;
  int32_t count;
};

struct ExchangeShared {
  Candidate peers[2][kRowBlocks];
  Candidate warps[kWarps];
};

__host__ __device__ constexpr int64_t part_tokens(int64_t vocab_size,
                                                  int32_t num_blocks) {
  return round_up(ceil_divide(vocab_size, num_blocks), kQuad);
}

__device__ inline Part part_of(int32_t vocab_size, int32_t num_blocks) {
  int32_t size = static_cast<int32_t>(part_tokens(vocab_size, num_blocks));
  int64_t begin = int64_t{size} * ptx::cluster_rank();
  int64_t left = vocab_size - begin;
  return {static_cast<int32_t>(begin < vocab_size ? begin : vocab_size),
          static_cast<int32_t>(left < 0      ? 0
                               : left < size ? left
                                             : size)};
}

__device__ inline int32_t lane() { return threadIdx.x % kWarpThreads; }
__device__ inline int32_t warp() { return threadIdx.x / kWarpThreads; }

__device__ inline bool is_leader() {
  return ptx::cluster_rank() == 0 && threadIdx.x < kWarpThreads;
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

class Exchange {
 public:
  __device__ Exchange(ExchangeShared& shared, int32_t num_blocks)
      : shared_(shared), num_blocks_(num_blocks) {}

  __device__ Candidate best_of(Candidate own) {
    own = warp_best(own);
    if (lane() == 0) shared_.warps[warp()] = own;
    __syncthreads();
    send(warp_best(of_lane(shared_.warps, kWarps)));
    return warp_best(of_lane(shared_.peers[parity_], num_blocks_));
  }

  __device__ uint64_t sum_of(uint64_t own) {
    own = warp_sum(own);
    if (lane() == 0) shared_.warps[warp()] = {own, 0};
    __syncthreads();
    send({warp_sum(of_lane(shared_.warps, kWarps).score), 0});
    return warp_sum(of_lane(shared_.peers[parity_], num_blocks_).score);
  }

 private:
  __device__ static Candidate of_lane(const Candidate* values, int32_t count) {
    Candidate none = {0, 0};
    return lane() < count ? values[lane()] : none;
  }

  __device__ void send(const Candidate& own) {
    parity_ ^= 1;
    if (threadIdx.x < num_blocks_)
      at_peer(shared_.peers[parity_], threadIdx.x)[ptx::cluster_rank()] = own;
    cluster_barrier();
  }

  ExchangeShared& shared_;
  int32_t num_blocks_;
  int32_t parity_ = 0;
};

}

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>

#include "native/ptx/bulk_copy.hpp"
#include "native/ptx/cluster.hpp"
#include "native/ptx/mbarrier.hpp"
#include "native/ptx/stmatrix.hpp"

namespace {

using namespace glm;

constexpr int32_t kWarp = 32;
constexpr int32_t kRounds = 3;
constexpr int32_t kManyRounds = 16;
constexpr int32_t kSlots = 8;
constexpr int32_t kPeers = 4;
constexpr int32_t kPeerThreads = 64;

__device__ int32_t lane() { return static_cast<int32_t>(threadIdx.x) % kWarp; }

__device__ bool is_giver() { return threadIdx.x < kWarp; }

__device__ void put_at_peer(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value)
               : "memory");
}

__device__ void arrive_at_peer(uint32_t barrier) {
  asm volatile(
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
          barrier)
      : "memory");
}

__device__ void wait_for_peers(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], "
      "%1;\n"
      "@!done bra again_%=;\n}\n" ::"r"(ptx::shared_address(barrier)),
      "r"(parity)
      : "memory");
}

template <bool each>
__device__ void arrive(uint64_t* barrier) {
  if constexpr (each) {
    ptx::barrier_arrive(barrier);
  } else {
    __syncwarp();
    if (lane() == 0) ptx::barrier_arrive(barrier);
  }
}

__device__ void init(uint64_t* barrier, bool each) {
  ptx::barrier_init(barrier, each ? kWarp : 1);
}

template <bool each_fills, bool each_frees>
__global__ void stored(float* output, const float*) {
  __shared__ float words[kWarp];
  __shared__ uint64_t full;
  __shared__ uint64_t empty;
  if (threadIdx.x == 0) {
    init(&full, each_fills);
    init(&empty, each_frees);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  for (int32_t round = 0; round < kRounds; ++round) {
    const uint32_t parity = round & 1;
    if (is_giver()) {
      ptx::barrier_wait(&empty, parity ^ 1);
      words[lane()] = static_cast<float>(round);
      arrive<each_fills>(&full);
    } else {
      ptx::barrier_wait(&full, parity);
      output[round * kWarp + lane()] = words[lane() ^ 5];
      arrive<each_frees>(&empty);
    }
  }
}

template <bool each_frees>
__global__ void copied(float* output, const float* input) {
  __shared__ alignas(128) float words[kWarp];
  __shared__ uint64_t full;
  __shared__ uint64_t empty;
  if (threadIdx.x == 0) {
    init(&full, false);
    init(&empty, each_frees);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  for (int32_t round = 0; round < kRounds; ++round) {
    const uint32_t parity = round & 1;
    if (is_giver()) {
      if (lane() != 0) continue;
      ptx::barrier_wait(&empty, parity ^ 1);
      ptx::barrier_expect(&full, sizeof words);
      ptx::bulk_copy(words, input + round * kWarp, sizeof words, &full);
    } else {
      ptx::barrier_wait(&full, parity);
      output[round * kWarp + lane()] = words[lane() ^ 5];
      arrive<each_frees>(&empty);
    }
  }
}

__global__ void copied_by_lanes(float* output, const float* input) {
  __shared__ alignas(128) float words[kSlots][kWarp];
  __shared__ uint64_t full[kSlots];
  __shared__ uint64_t empty[kSlots];
  if (threadIdx.x < kSlots) {
    init(&full[threadIdx.x], false);
    init(&empty[threadIdx.x], true);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kWarp - 1;
  for (int32_t round = 0; round < kManyRounds; ++round) {
    const uint32_t parity = round & 1;
    if (!is_giver()) {
      ptx::barrier_wait(&full[warp], parity);
      if (round % kSlots == warp) __nanosleep(2000);
      output[warp * kWarp + lane()] = words[warp][lane() ^ 5];
      ptx::barrier_arrive(&empty[warp]);
    } else if (lane() < kSlots) {
      ptx::barrier_wait(&empty[lane()], parity ^ 1);
      ptx::barrier_expect(&full[lane()], sizeof words[0]);
      ptx::bulk_copy(words[lane()], input, sizeof words[0], &full[lane()]);
    }
    __syncwarp();
  }
}

template <bool cluster_barrier>
__global__ __cluster_dims__(kPeers) void sent(float* output, const float*) {
  __shared__ float words[kPeers][kPeerThreads];
  __shared__ uint64_t received;
  const uint32_t rank = ptx::cluster_rank();
  if (threadIdx.x == 0) {
    ptx::barrier_init(&received, kPeers);
    ptx::barrier_init_fence();
  }
  __syncthreads();
  ptx::cluster_arrive();
  ptx::cluster_wait();
  for (uint32_t peer = 0; peer < kPeers; ++peer)
    put_at_peer(ptx::peer_address(&words[rank][threadIdx.x], peer), 1.0f);
  if constexpr (cluster_barrier) {
    ptx::cluster_arrive();
    ptx::cluster_wait();
  } else {
    ptx::named_barrier<kPeerThreads>(1);
    if (threadIdx.x < kPeers)
      arrive_at_peer(ptx::peer_address(&received, threadIdx.x));
    wait_for_peers(&received, 0);
  }
  float sum = 0;
  for (const auto& row : words) sum += row[threadIdx.x ^ 33];
  output[rank * kPeerThreads + threadIdx.x] = sum;
}

__global__ void unordered(float* output, const float*) {
  __shared__ float words[kPeerThreads];
  words[threadIdx.x] = static_cast<float>(threadIdx.x);
  output[threadIdx.x] = words[threadIdx.x ^ 33];
}

using Kernel = void (*)(float*, const float*);

bool run(const char* name, Kernel kernel, uint32_t blocks, float* output,
         const float* input, uint32_t threads = kPeerThreads) {
  kernel<<<blocks, threads>>>(output, input);
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s: %s\n", name, cudaGetErrorName(error));
  return error == cudaSuccess;
}

}

int main() {
  float* output = nullptr;
  float* input = nullptr;
  if (cudaMalloc(&output, 4096) != cudaSuccess ||
      cudaMalloc(&input, 4096) != cudaSuccess ||
      cudaMemset(input, 0, 4096) != cudaSuccess)
    return 1;
  bool done = run("unordered", unordered, 1, output, input);
  done &= run("stored, one, one", stored<false, false>, 1, output, input);
  done &= run("stored, each, one", stored<true, false>, 1, output, input);
  done &= run("stored, one, each", stored<false, true>, 1, output, input);
  done &= run("stored, each, each", stored<true, true>, 1, output, input);
  done &= run("copied, one", copied<false>, 1, output, input);
  done &= run("copied, each", copied<true>, 1, output, input);
  done &= run("copied by lanes, each", copied_by_lanes, 1, output, input,
              kWarp * (kSlots + 1));
  done &= run("sent, mbarrier", sent<false>, kPeers, output, input);
  done &= run("sent, cluster", sent<true>, kPeers, output, input);
  return done ? 0 : 1;
}

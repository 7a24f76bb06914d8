#pragma once

#include <cstdint>

namespace glm::kernels::sampling {

constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
constexpr int32_t kWarpThreads = 32;
constexpr uint32_t kInfinityBits = 0x7F800000u;
constexpr uint32_t kLowestKey = 0x00800000u;
constexpr uint32_t kZeroKey = 0x80000000u;
constexpr uint64_t kNotFinite = ~uint64_t{0};

__device__ inline uint32_t ordered(float value) {
  uint32_t bits = __float_as_uint(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

__device__ inline float unordered(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7FFFFFFFu : ~key);
}

__device__ inline uint64_t ordered(double value) {
  uint64_t bits = __double_as_longlong(value + 0.0);
  return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
}

__device__ inline uint64_t ranked(float value, int32_t token) {
  uint32_t key = ordered(value);
  uint32_t rest = ~static_cast<uint32_t>(token);
  return key < kLowestKey ? 0 : uint64_t{key} << 32 | rest;
}

__device__ inline int32_t token_of(uint64_t rank) {
  return rank == 0 ? -1 : static_cast<int32_t>(~static_cast<uint32_t>(rank));
}

__device__ inline float value_of(uint64_t rank) {
  return unordered(static_cast<uint32_t>(rank >> 32));
}

struct alignas(16) Candidate {
  uint64_t score;
  uint64_t rank;
};

__device__ inline uint64_t warp_largest(uint64_t own) {
  uint32_t high = static_cast<uint32_t>(own >> 32);
  uint32_t largest = __reduce_max_sync(kAllLanes, high);
  uint32_t low = high == largest ? static_cast<uint32_t>(own) : 0;
  return uint64_t{largest} << 32 | __reduce_max_sync(kAllLanes, low);
}

__device__ inline Candidate warp_best(const Candidate& own) {
  uint64_t score = warp_largest(own.score);
  return {score, warp_largest(own.score == score ? own.rank : 0)};
}

__device__ inline uint64_t warp_sum(uint64_t own) {
#pragma unroll
  for (int32_t distance = kWarpThreads / 2; distance > 0; distance /= 2)
    own += __shfl_xor_sync(kAllLanes, own, distance);
  return own;
}

}

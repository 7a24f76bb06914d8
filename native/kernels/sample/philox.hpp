#pragma once

#include <cstdint>

namespace glm::kernels::sampling {

constexpr uint32_t kMultiplierA = 0xD2511F53u;
constexpr uint32_t kMultiplierB = 0xCD9E8D57u;
constexpr uint32_t kWeylA = 0x9E3779B9u;
constexpr uint32_t kWeylB = 0xBB67AE85u;
constexpr int32_t kPhiloxRounds = 10;
constexpr float kNoiseOfOneBit = 0.6932f;
constexpr float kLargestNoise = 33.0f * kNoiseOfOneBit;
constexpr float kSmallestNoise = -3.2f;

struct RandomWords {
  uint32_t words[4];
};

__device__ inline RandomWords random_words(uint64_t seed, int32_t position,
                                           uint32_t quad) {
  uint32_t a = quad, b = static_cast<uint32_t>(position), c = 0, d = 0;
  uint32_t key_a = static_cast<uint32_t>(seed);
  uint32_t key_b = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int32_t round = 0; round < kPhiloxRounds; ++round) {
    uint64_t first = uint64_t{kMultiplierA} * a;
    uint64_t second = uint64_t{kMultiplierB} * c;
    a = static_cast<uint32_t>(second >> 32) ^ b ^ key_a;
    b = static_cast<uint32_t>(second);
    c = static_cast<uint32_t>(first >> 32) ^ d ^ key_b;
    d = static_cast<uint32_t>(first);
    key_a += kWeylA;
    key_b += kWeylB;
  }
  return {{a, b, c, d}};
}

__device__ inline double gumbel(uint32_t word) {
  double uniform = (static_cast<double>(word) + 0.5) / 4294967296.0;
  return -log(-log(1.0 - uniform));
}

__device__ inline float gumbel_bound(uint32_t word) {
  return kNoiseOfOneBit * static_cast<float>(__clz(word) + 1);
}

}

#pragma once

#include <cstdint>

#include "native/kernels/sample/philox.hpp"
#include "native/kernels/sample/threshold.hpp"

namespace glm::kernels::sampling {

class GumbelMaximum {
 public:
  __device__ GumbelMaximum(const RowControls& controls, uint32_t floor)
      : seed_(controls.seed),
        position_(controls.position),
        floor_(unordered(floor)) {}

  __device__ void consider(int32_t token, const float4& quad, int32_t count) {
    float scaled[kQuad] = {quad.x, quad.y, quad.z, quad.w};
    bool is_possible = false;
#pragma unroll
    for (int32_t i = 0; i < kQuad; ++i)
      is_possible |= i < count && can_win(scaled[i], kLargestNoise);
    if (!is_possible) return;
    RandomWords random =
        random_words(seed_, position_, static_cast<uint32_t>(token / kQuad));
#pragma unroll
    for (int32_t i = 0; i < kQuad; ++i)
      if (i < count && can_win(scaled[i], gumbel_bound(random.words[i])))
        consider_one(token + i, scaled[i], random.words[i]);
  }

  __device__ const Candidate& best() const { return best_; }

 private:
  __device__ bool can_win(float scaled, float bound) const {
    return scaled >= floor_ && scaled + bound >= limit_;
  }

  __device__ void consider_one(int32_t token, float scaled, uint32_t word) {
    double score = static_cast<double>(scaled) + gumbel(word);
    Candidate other = {ordered(score), ranked(0.0f, token)};
    if (other.score <= best_.score) return;
    best_ = other;
    limit_ = fmaxf(limit_, __double2float_rd(score));
  }

  uint64_t seed_;
  int32_t position_;
  float floor_;
  float limit_ = kSmallestNoise;
  Candidate best_ = {0, 0};
};

__device__ inline float4 scaled_quad(const float4& quad, float largest,
                                     float temperature) {
  float4 below = {quad.x - largest, quad.y - largest, quad.z - largest,
                  quad.w - largest};
  if (temperature == 1.0f) return below;
  return {__fdiv_rn(below.x, temperature), __fdiv_rn(below.y, temperature),
          __fdiv_rn(below.z, temperature), __fdiv_rn(below.w, temperature)};
}

__device__ inline void scale_values(Row& row, float largest,
                                    float temperature) {
  row.for_each_quad([=](int32_t, float4& quad) {
    quad = scaled_quad(quad, largest, temperature);
  });
}

__device__ inline int32_t draw(Row& row, const RowControls& controls,
                               float largest) {
  scale_values(row, largest, controls.temperature);
  uint32_t floor = survivors_floor(row, controls);
  GumbelMaximum maximum(controls, floor);
  if (floor <= kZeroKey)
    row.for_each_quad([&](int32_t at, const float4& quad) {
      maximum.consider(row.part.begin + at, quad, row.part.count - at);
    });
  return token_of(row.exchange.best_of(maximum.best()).rank);
}

}

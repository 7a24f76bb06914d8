#ifndef GLM_KERNELS_SAMPLE_DRAW_HPP
#define GLM_KERNELS_SAMPLE_DRAW_HPP

#include <cstdint>

#include "native/kernels/sample/philox.hpp"
#include "native/kernels/sample/threshold.hpp"

namespace glm::kernels::sampling {

struct Lanes {
  float values[kQuad];
};

class GumbelMaximum {
 public:
  __device__ GumbelMaximum(const RowControls& controls, const Scaling& scaling,
                           uint32_t floor)
      : controls_(controls), scaling_(scaling), floor_(floor) {}

  __device__ void consider(int32_t token, const float4& logits, int32_t count) {
    Lanes scaled = {{scaling_(logits.x), scaling_(logits.y), scaling_(logits.z),
                     scaling_(logits.w)}};
    bool is_possible = false;
#pragma unroll
    for (int32_t i = 0; i < kQuad; ++i)
      is_possible |= i < count && can_win(scaled.values[i], kLargestNoise);
    if (!is_possible) return;
    RandomWords random = random_words(controls_.seed, controls_.position,
                                      static_cast<uint32_t>(token / kQuad));
#pragma unroll
    for (int32_t i = 0; i < kQuad; ++i)
      if (i < count) consider_one(token + i, scaled.values[i], random.words[i]);
  }

  __device__ const Candidate& best() const { return best_; }

 private:
  __device__ bool can_win(float scaled, float bound) const {
    return ordered(scaled) >= floor_ &&
           static_cast<double>(scaled + bound) >= largest_;
  }

  __device__ void consider_one(int32_t token, float scaled, uint32_t word) {
    if (!can_win(scaled, gumbel_bound(word))) return;
    double score = static_cast<double>(scaled) + gumbel(word);
    Candidate other = {ordered(score), ranked(0.0f, token)};
    if (other.score <= best_.score) return;
    best_ = other;
    largest_ = fmax(largest_, score);
  }

  const RowControls& controls_;
  const Scaling& scaling_;
  uint32_t floor_;
  double largest_ = kSmallestNoise;
  Candidate best_ = {0, 0};
};

__device__ inline int32_t draw(ClusterRow& row, const RowControls& controls,
                               float largest, int32_t vocab_size) {
  Scaling scaling = {largest, controls.temperature};
  uint32_t floor = survivors_floor(row, controls, scaling, vocab_size);
  GumbelMaximum maximum(controls, scaling, floor);
  const Slice& slice = row.slice();
  for_each_quad(slice, [&](int32_t at, const float4& quad) {
    maximum.consider(slice.begin + at, quad, slice.count - at);
  });
  return token_of(row.best_of(maximum.best()).rank);
}

}

#endif

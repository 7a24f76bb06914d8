#ifndef GLM_KERNELS_SAMPLE_ADJUST_HPP
#define GLM_KERNELS_SAMPLE_ADJUST_HPP

#include <cstdint>

#include "native/kernels/sample/cluster_row.hpp"

namespace glm::kernels::sampling {

constexpr float kLargestFinite = 3.4028234663852886e38f;

struct GivenRow {
  const float* logits;
  bool is_aligned;
};

__device__ inline float minus_infinity() {
  return __uint_as_float(kInfinityBits | kZeroKey);
}

__device__ inline GivenRow given_row(const glm_sample_args& args, int32_t row) {
  const float* logits = args.logits + int64_t{row} * args.vocab_size;
  bool is_aligned = args.vocab_size % kQuad == 0 &&
                    reinterpret_cast<uintptr_t>(logits) % sizeof(float4) == 0;
  return {logits, is_aligned};
}

__device__ inline float bounded(float logit) {
  return fmaxf(-kLargestFinite, fminf(kLargestFinite, logit));
}

__device__ inline float penalised(const RowControls& controls, uint32_t count,
                                  float logit) {
  float repeated = count == 0  ? logit
                   : logit > 0 ? __fdiv_rn(logit, controls.repetition)
                               : logit * controls.repetition;
  uint32_t outputs = count & kOutputCount;
  float frequent =
      __fsub_rn(bounded(repeated),
                __fmul_rn(controls.frequency, static_cast<float>(outputs)));
  float present = outputs == 0 ? 0.0f : controls.presence;
  return bounded(bounded(frequent) - present);
}

template <typename Element>
__device__ Element read_at(const Element* row, int32_t index, int32_t end) {
  return index < end ? row[index] : Element{};
}

template <bool is_aligned>
__device__ float4 read_quad(const float* logits, int32_t at, int32_t end) {
  float4 quad = {};
  if constexpr (is_aligned) {
    if (at < end) quad = __ldcs(reinterpret_cast<const float4*>(logits + at));
  } else {
    quad = {read_at(logits, at, end), read_at(logits, at + 1, end),
            read_at(logits, at + 2, end), read_at(logits, at + 3, end)};
  }
  return quad;
}

__device__ inline float4 penalised_quad(const RowControls& controls,
                                        const float4& quad, int32_t at,
                                        int32_t end) {
  const uint32_t* counts = controls.counts;
  return {penalised(controls, read_at(counts, at, end), quad.x),
          penalised(controls, read_at(counts, at + 1, end), quad.y),
          penalised(controls, read_at(counts, at + 2, end), quad.z),
          penalised(controls, read_at(counts, at + 3, end), quad.w)};
}

__device__ inline float4 masked_quad(const uint32_t* mask, const float4& quad,
                                     int32_t at) {
  uint32_t allowed = mask[at / kMaskBits] >> (at % kMaskBits);
  return {allowed & 1 ? quad.x : minus_infinity(),
          allowed & 2 ? quad.y : minus_infinity(),
          allowed & 4 ? quad.z : minus_infinity(),
          allowed & 8 ? quad.w : minus_infinity()};
}

__device__ inline float nothing_if_finite(const float4& quad) {
  float sum = quad.x * 0.0f;
  sum = fmaf(quad.y, 0.0f, sum);
  sum = fmaf(quad.z, 0.0f, sum);
  return fmaf(quad.w, 0.0f, sum);
}

template <int32_t in_flight, bool is_aligned, typename Visit>
__device__ bool read_quads(const float* logits, const Part& part, Visit visit) {
  float check = 0.0f;
  int32_t end = part.begin + part.count;
  constexpr int32_t kStride = kThreads * kQuad;
  for (int32_t first = part.begin + static_cast<int32_t>(threadIdx.x) * kQuad;
       first < end; first += kStride * in_flight) {
    float4 quads[in_flight];
#pragma unroll
    for (int32_t i = 0; i < in_flight; ++i)
      quads[i] = read_quad<is_aligned>(logits, first + i * kStride, end);
#pragma unroll
    for (int32_t i = 0; i < in_flight; ++i) {
      check += nothing_if_finite(quads[i]);
      if (first + i * kStride < end) visit(first + i * kStride, quads[i]);
    }
  }
  return check == 0.0f;
}

template <int32_t in_flight, typename Visit>
__device__ bool read_part(const GivenRow& given, const Part& part,
                          Visit visit) {
  if (given.is_aligned)
    return read_quads<in_flight, true>(given.logits, part, visit);
  return read_quads<1, false>(given.logits, part, visit);
}

__device__ inline float adjusted_logit(const glm_sample_args& args,
                                       const GivenRow& given,
                                       const RowControls& controls,
                                       int32_t token) {
  float value = given.logits[token];
  if (controls.counts != nullptr)
    value = penalised(controls, controls.counts[token], value);
  for (int32_t i = controls.bias_begin; i < controls.bias_end; ++i)
    if (args.bias_tokens[i] == token)
      value = bounded(value + args.bias_values[i]);
  return value;
}

}

#endif

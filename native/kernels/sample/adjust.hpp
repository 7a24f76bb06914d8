#pragma once

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

__device__ inline bool begins_quad(const void* row) {
  return reinterpret_cast<uintptr_t>(row) % sizeof(float4) == 0;
}

__device__ inline GivenRow given_row(const glm_sample_args& args, int32_t row,
                                     const RowControls& controls) {
  const float* logits = args.logits + int64_t{row} * args.vocab_size;
  bool is_aligned = args.vocab_size % kQuad == 0 && begins_quad(logits) &&
                    begins_quad(controls.counts);
  return {logits, is_aligned};
}

__device__ inline float bounded(float logit) {
  return fmaxf(-kLargestFinite, fminf(kLargestFinite, logit));
}

__device__ inline float penalised(const RowControls& controls, uint32_t count,
                                  float logit) {
  if (count == 0) return logit;
  float repeated = logit > 0 ? __fdiv_rn(logit, controls.repetition)
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

template <typename Quad, bool is_aligned, typename Element>
__device__ Quad read_quad(const Element* row, int32_t at, int32_t end) {
  Quad quad = {};
  if constexpr (is_aligned) {
    if (at < end) quad = __ldcs(reinterpret_cast<const Quad*>(row + at));
  } else {
    quad = {read_at(row, at, end), read_at(row, at + 1, end),
            read_at(row, at + 2, end), read_at(row, at + 3, end)};
  }
  return quad;
}

__device__ inline uint32_t drafts_of(const RowControls& controls,
                                     int32_t token) {
  uint32_t count = 0;
  for (int32_t i = 0; i < controls.num_drafts; ++i)
    count += controls.drafts[i] == token;
  return count;
}

__device__ inline void add_drafts(const RowControls& controls, int32_t at,
                                  uint4& counts) {
  if (controls.num_drafts <= 0) return;
  counts.x += drafts_of(controls, at);
  counts.y += drafts_of(controls, at + 1);
  counts.z += drafts_of(controls, at + 2);
  counts.w += drafts_of(controls, at + 3);
}

__device__ inline float4 penalised_quad(const RowControls& controls,
                                        const uint4& counts,
                                        const float4& quad) {
  return {penalised(controls, counts.x, quad.x),
          penalised(controls, counts.y, quad.y),
          penalised(controls, counts.z, quad.z),
          penalised(controls, counts.w, quad.w)};
}

__device__ inline bool is_allowed(const uint32_t* mask, int32_t token) {
  return mask == nullptr || mask[token / kMaskBits] >> (token % kMaskBits) & 1;
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

template <int32_t in_flight, bool is_aligned, bool is_counted, typename Visit>
__device__ bool read_quads(const GivenRow& given, const RowControls& controls,
                           const Part& part, Visit visit) {
  float check = 0.0f;
  int32_t end = part.begin + part.count;
  constexpr int32_t kStride = kThreads * kQuad;
  for (int32_t first = part.begin + static_cast<int32_t>(threadIdx.x) * kQuad;
       first < end; first += kStride * in_flight) {
    float4 quads[in_flight];
    uint4 counts[in_flight];
#pragma unroll
    for (int32_t i = 0; i < in_flight; ++i) {
      int32_t at = first + i * kStride;
      quads[i] = read_quad<float4, is_aligned>(given.logits, at, end);
      if constexpr (is_counted)
        counts[i] = read_quad<uint4, is_aligned>(controls.counts, at, end);
    }
#pragma unroll
    for (int32_t i = 0; i < in_flight; ++i) {
      check += nothing_if_finite(quads[i]);
      if constexpr (is_counted) {
        add_drafts(controls, first + i * kStride, counts[i]);
        quads[i] = penalised_quad(controls, counts[i], quads[i]);
      }
      if (first + i * kStride < end) visit(first + i * kStride, quads[i]);
    }
  }
  return check == 0.0f;
}

template <int32_t in_flight, bool is_counted, typename Visit>
__device__ bool read_penalised(const GivenRow& given,
                               const RowControls& controls, const Part& part,
                               Visit visit) {
  if (given.is_aligned)
    return read_quads<in_flight, true, is_counted>(given, controls, part,
                                                   visit);
  return read_quads<1, false, is_counted>(given, controls, part, visit);
}

template <int32_t in_flight, typename Visit>
__device__ bool read_part(const GivenRow& given, const RowControls& controls,
                          const Part& part, Visit visit) {
  if (controls.counts != nullptr)
    return read_penalised<in_flight / 2, true>(given, controls, part, visit);
  return read_penalised<in_flight, false>(given, controls, part, visit);
}

__device__ inline float adjusted_logit(const glm_sample_args& args,
                                       const GivenRow& given,
                                       const RowControls& controls,
                                       int32_t token) {
  if (!is_allowed(controls.mask, token)) return minus_infinity();
  float value = given.logits[token];
  if (controls.counts != nullptr)
    value = penalised(
        controls, controls.counts[token] + drafts_of(controls, token), value);
  for (int32_t i = controls.bias_begin; i < controls.bias_end; ++i)
    if (args.bias_tokens[i] == token)
      value = bounded(value + args.bias_values[i]);
  return value;
}

}

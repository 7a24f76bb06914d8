#ifndef GLM_KERNELS_SAMPLE_ADJUST_HPP
#define GLM_KERNELS_SAMPLE_ADJUST_HPP

#include <cstdint>

#include "native/kernels/sample/cluster_row.hpp"

namespace glm::kernels::sampling {

constexpr float kLargestFinite = 3.4028234663852886e38f;
constexpr int32_t kQuadsInFlight = 4;

struct GivenRow {
  const float* logits;
  int32_t vocab_size;
  bool is_aligned;
};

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

__device__ inline bool is_finite(float value) {
  return (__float_as_uint(value) & ~kZeroKey) < kInfinityBits;
}

template <typename Element>
__device__ Element read_at(const Element* row, int32_t index, int32_t end) {
  return index < end ? row[index] : Element{};
}

__device__ inline float4 read_quad(const GivenRow& given, int32_t at,
                                   int32_t end) {
  if (given.is_aligned && at + kQuad <= end)
    return *reinterpret_cast<const float4*>(given.logits + at);
  return {read_at(given.logits, at, end), read_at(given.logits, at + 1, end),
          read_at(given.logits, at + 2, end),
          read_at(given.logits, at + 3, end)};
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

__device__ inline bool is_finite(const float4& quad) {
  return is_finite(quad.x) && is_finite(quad.y) && is_finite(quad.z) &&
         is_finite(quad.w);
}

__device__ inline bool load_slice(const GivenRow& given,
                                  const RowControls& controls,
                                  const Slice& slice) {
  bool all_finite = true;
  int32_t end = slice.begin + slice.count;
  for (int32_t first = threadIdx.x * kQuad; first < slice.count;
       first += kThreads * kQuad * kQuadsInFlight) {
    float4 quads[kQuadsInFlight];
#pragma unroll
    for (int32_t i = 0; i < kQuadsInFlight; ++i)
      quads[i] =
          read_quad(given, slice.begin + first + i * kThreads * kQuad, end);
#pragma unroll
    for (int32_t i = 0; i < kQuadsInFlight; ++i) {
      int32_t at = first + i * kThreads * kQuad;
      if (at >= slice.count) break;
      all_finite = all_finite && is_finite(quads[i]);
      if (controls.counts != nullptr)
        quads[i] = penalised_quad(controls, quads[i], slice.begin + at, end);
      *reinterpret_cast<float4*>(slice.values + at) = quads[i];
    }
  }
  return all_finite;
}

__device__ inline void add_biases(const glm_sample_args& args,
                                  const RowControls& controls,
                                  const Slice& slice) {
  for (int32_t i = controls.bias_begin; i < controls.bias_end; ++i) {
    int32_t at = args.bias_tokens[i] - slice.begin;
    if (at < 0 || at >= slice.count || at % kThreads != threadIdx.x) continue;
    slice.values[at] = bounded(slice.values[at] + args.bias_values[i]);
  }
}

__device__ inline void forbid_tokens(const uint32_t* mask, const Slice& slice) {
  for (int32_t at = threadIdx.x; at < slice.count; at += kThreads) {
    int32_t token = slice.begin + at;
    if ((mask[token / kMaskBits] >> (token % kMaskBits) & 1) == 0)
      slice.values[at] = __uint_as_float(kInfinityBits | kZeroKey);
  }
}

__device__ inline bool adjust_slice(const glm_sample_args& args,
                                    const GivenRow& given,
                                    const RowControls& controls,
                                    const Slice& slice) {
  bool all_finite = load_slice(given, controls, slice);
  if (controls.bias_begin < controls.bias_end) {
    __syncthreads();
    add_biases(args, controls, slice);
  }
  if (controls.mask != nullptr) {
    __syncthreads();
    forbid_tokens(controls.mask, slice);
  }
  __syncthreads();
  return all_finite;
}

}

#endif
